# title: Files: locks, leases, mmap, holes, O_TMPFILE, xattrs, renameat2, fallocate
# area: Kernel interfaces
# why: ^hole => gVisor does not find holes with lseek.
# why: ^tmpfile => There is no O_TMPFILE in the overlay of a sandbox; programs fall back to a name that they remove.
# why: ^copy_file_range => gVisor has no copy_file_range; copying falls back to reads and writes.
# why: ^exchange => renameat2 cannot exchange two names.
python3 - <<'P'
import os,fcntl,mmap,ctypes,errno
def t(n,f):
    try: print(n,f())
    except OSError as e: print(n,errno.errorcode[e.errno])
f=open('a','w+b'); f.truncate(1<<20); m=mmap.mmap(f.fileno(),0); m[5:8]=b'abc'; m.flush(); t('mmap',lambda:open('a','rb').read()[5:8])
t('lock',lambda:fcntl.lockf(f,fcntl.LOCK_EX|fcntl.LOCK_NB)); t('flock',lambda:fcntl.flock(f,fcntl.LOCK_EX))
t('fallocate',lambda:os.posix_fallocate(f.fileno(),0,2<<20)); t('hole',lambda:os.lseek(f.fileno(),0,os.SEEK_HOLE)>0)
t('tmpfile',lambda:os.open('.',os.O_TMPFILE|os.O_RDWR)>0); t('xattr',lambda:(os.setxattr('a','user.x',b'1'),os.getxattr('a','user.x')))
t('copy_file_range',lambda:os.copy_file_range(f.fileno(),os.open('b',os.O_CREAT|os.O_RDWR),100)); t('sendfile',lambda:os.sendfile(os.open('c',os.O_CREAT|os.O_RDWR),f.fileno(),0,100))
l=ctypes.CDLL(None,use_errno=True); open('d','w'); t('exchange',lambda:l.renameat2(-100,b'a',-100,b'd',2)); t('memfd',lambda:os.memfd_create('x')>0); t('fifo',lambda:os.mkfifo('p')); t('statvfs',lambda:os.statvfs('.').f_bsize); t('link',lambda:os.link('b','e')); t('sync',os.sync)
t('eventfd',lambda:l.eventfd(0,0)>0); t('timerfd',lambda:l.timerfd_create(1,0)>0); t('name255',lambda:open('n'*255,'w').close()); t('name256',lambda:open('n'*256,'w'))
P
