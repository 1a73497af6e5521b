import java.io.IOException;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/** Threads that compute and make garbage, and a file that is written by way of memory. */
public class Work {
    static long compute(long seed) {
        long sum = seed;
        List<byte[]> garbage = new ArrayList<>();
        for (long i = 0; i < 60_000_000L; i++) {
            sum = sum * 6364136223846793005L + i;
            if ((i & 0xffff) == 0) {
                garbage.add(new byte[1 << 14]);
                if (garbage.size() > 200) {
                    garbage.clear();
                }
            }
        }
        return sum;
    }

    public static void main(String[] arguments) throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(3);
        List<Future<Long>> sums = new ArrayList<>();
        for (long seed = 1; seed <= 6; seed++) {
            long start = seed;
            sums.add(threads.submit(() -> compute(start)));
        }
        try (FileChannel channel = FileChannel.open(Path.of("written"), StandardOpenOption.CREATE,
                StandardOpenOption.READ, StandardOpenOption.WRITE)) {
            MappedByteBuffer bytes = channel.map(FileChannel.MapMode.READ_WRITE, 0, 100_000);
            for (Future<Long> sum : sums) {
                long value = sum.get();
                System.out.println(value);
                while (bytes.remaining() > 80_000 || bytes.remaining() % 1000 != 0) {
                    bytes.putInt((int) (value + bytes.position()));
                }
                bytes.putLong(value);
                bytes.force();
            }
        }
        threads.shutdown();
        System.out.println(Files.size(Path.of("written")));
    }
}
