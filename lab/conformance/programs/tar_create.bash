mkdir -p tree/a/b; for i in $(seq 1 60); do head -c $((i * 700)) words > tree/a/file$i; done
ln -s file1 tree/a/link; ln tree/a/file2 tree/a/b/hard; chmod 640 tree/a/file3; mkfifo tree/pipe
exec tar --create --file all.tar --sort=name --mtime=@0 --owner=0 --group=0 --verbose \
    --checkpoint=20 --checkpoint-action='exec=sleep 0.05' tree
