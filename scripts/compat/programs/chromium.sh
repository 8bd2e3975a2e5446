# title: Chromium, headless: a page with scripts, a screenshot
# area: Graphics
# flags: --memory 4g --pids 2048 --timeout 5m
printf '<!doctype html><title>t</title><body style="margin:0;background:#f00"><p id=p></p><script>document.getElementById("p").textContent=[1,2,3].map(x=>x*x).join()+" "+new Intl.NumberFormat("en").format(12345.6)</script>' > a.html
F="--headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run --disable-background-networking --disable-component-update --disable-sync --user-data-dir=/tmp/u"
timeout 120 chromium $F --dump-dom file:///workspace/a.html 2>/dev/null | grep -o '1,4,9 [0-9,.]*'
timeout 120 chromium $F --screenshot=/workspace/a.png --window-size=320,200 file:///workspace/a.html >/dev/null 2>&1
identify -format '%m %w %h %[pixel:p{300,150}]\n' a.png
