# title: Archives: gzip, xz, zstd, bzip2, zip, cpio
# area: Shells and core tools
seq 1 200000 > f; for c in gzip xz zstd bzip2; do $c -c f | $c -dc | md5sum; done; zip -q a.zip f && unzip -p a.zip f | md5sum; tar -cJf a.txz f && tar -xOJf a.txz f | md5sum; tar --sparse -cf s.tar f; tar -tf s.tar
