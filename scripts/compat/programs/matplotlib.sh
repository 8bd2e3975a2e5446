# title: pandas and matplotlib: a table to a PNG
# area: Graphics
MPLBACKEND=Agg python3 - <<'P'
import pandas as pd, numpy as np, matplotlib.pyplot as plt, hashlib
d=pd.DataFrame({'x':range(100),'y':np.sin(np.arange(100)/9)}); print(d.describe().round(4).to_string())
fig,ax=plt.subplots(); d.plot(ax=ax,x='x',y='y'); fig.canvas.draw(); print(hashlib.sha256(fig.canvas.buffer_rgba()).hexdigest()); fig.savefig('a.png')
print(open('a.png','rb').read(8))
P
