# title: numpy with BLAS threads, shared memory between processes
# area: Languages
python3 - <<'P'
import numpy as np, multiprocessing as mp
from multiprocessing import shared_memory
a=np.arange(250000.).reshape(500,500); print(np.linalg.norm(a@a.T).round(2))
def f(name): 
    s=shared_memory.SharedMemory(name=name); v=np.ndarray((1000,),dtype='i8',buffer=s.buf); v+=1; del v; s.close()
if __name__=='__main__':
    s=shared_memory.SharedMemory(create=True,size=8000); v=np.ndarray((1000,),dtype='i8',buffer=s.buf); v[:]=0
    for _ in range(3):
        p=mp.Process(target=f,args=(s.name,)); p.start(); p.join()
    print(int(v.sum()))
    with mp.Pool(4) as p: print(sum(p.map(abs, range(-100,100))))
    del v; s.close(); s.unlink()
P
