# Computes, and makes hardly any system calls.
BEGIN {
    token = ARGV[1]; status = ARGV[2]; ARGC = 1
    log_file = token ".log"
    while (1) {
        lap++
        sum = 0; number = 1
        for (i = 0; i < 1500000; i++) { number = (number * 7919 + 13) % 1000003; sum += sqrt(number) }
        printf "%s %d %.6f\n", token, lap, sum >> log_file
        close(log_file)
        if ((getline line < "stop") >= 0) break
        close("stop")
    }
    print token, "ended after", lap
    exit status
}
