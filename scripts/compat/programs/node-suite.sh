# title: Node: files, workers, streams, child processes
# area: Languages
cat > t.js <<'J'
const fs=require('fs'),cp=require('child_process'),{Worker,isMainThread,parentPort}=require('worker_threads'),zlib=require('zlib'),crypto=require('crypto'),os=require('os');
if(!isMainThread){parentPort.on('message',n=>{let s=0;for(let i=0;i<n;i++)s+=i;parentPort.postMessage(s)})}
else (async()=>{
 fs.writeFileSync('a','x'.repeat(1e6));console.log(zlib.gunzipSync(zlib.gzipSync(fs.readFileSync('a'))).length);
 console.log(crypto.createHash('sha256').update(fs.readFileSync('a')).digest('hex'));
 console.log(cp.execFileSync('sh',['-c','echo child; exit 0']).toString().trim());
 const w=new Worker(__filename);w.postMessage(1e6);console.log(await new Promise(r=>w.on('message',r)));await w.terminate();
 const seen=new Promise(r=>{const f=fs.watch('.',(e,n)=>{if(n==='b'){f.close();r(n)}})});setTimeout(()=>fs.writeFileSync('b','1'),200);console.log('watched',await seen);
 const h=require('http').createServer((q,r)=>r.end('pong')).listen(0,async()=>{const r=await fetch('http://127.0.0.1:'+h.address().port);console.log(r.status,await r.text());h.close()});
})();
J
node t.js
