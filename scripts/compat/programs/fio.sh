# title: fio: reads and writes, verified
# area: Kernel interfaces
fio --name=v --filename=/tmp/f --size=16m --rw=randwrite --bs=4k --verify=crc32c --do_verify=1 --ioengine=psync --minimal 2>/dev/null | cut -d';' -f3,5; fio --name=m --filename=/tmp/g --size=8m --rw=readwrite --ioengine=mmap --minimal | cut -d';' -f3,5
