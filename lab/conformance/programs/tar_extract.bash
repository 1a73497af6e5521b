mkdir there; for i in $(seq 1 60); do head -c $((i * 900)) words > file$i; done
tar -c --mtime=@0 file* | gzip -n > all.tgz; rm file*
exec tar --extract --verbose --file all.tgz --directory there --checkpoint=20 \
    --checkpoint-action='exec=sleep 0.05'
