# title: Core tools: sort, find, tar, dd, ln, stat, touch, chmod, df
# area: Shells and core tools
# why: ^104857600 => A sparse file reads as one, but `stat` counts the blocks of its length: gVisor's file system of memory does not tell holes in that figure.
seq 1 100000 | shuf --random-source=<(yes) | sort -n -S 10M --parallel=2 | md5sum
mkdir -p d/{a,b}/{1..20}; touch -d '2020-02-02 02:02:02 UTC' d/a/1/f; ln d/a/1/f d/h; ln -s a/1/f d/s; stat -c '%F %h %Y %a' d/a/1/f; stat -c '%F %h %a' d/s; find d -newermt 2020-01-01 -type f | wc -l
chmod 4755 d/h; stat -c %a d/h; chmod 0 d/a/2; ls -ld d/a/2 | cut -c1-10; cp -a d e && diff -r d e && echo same
dd if=/dev/zero of=z bs=1M count=0 seek=100 2>/dev/null; stat -c '%s %b' z; truncate -s 5 z; stat -c %s z; printf abcdef | dd of=z bs=1 seek=2 conv=notrunc 2>/dev/null; od -c z | head -2
tar -cf - d | tar -tf - | wc -l; mkfifo p; (echo through > p &) ; cat p; split -n 3 -d /etc/services x 2>/dev/null || true; touch -- '-odd name' $'new\nline'; ls | wc -l
