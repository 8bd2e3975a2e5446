# title: Clocks, time zones, timers
# area: Kernel interfaces
TZ=UTC date -d @0 '+%F %T %Z'; python3 -c "
import time; a=time.monotonic(); time.sleep(.2); b=time.monotonic()-a; print(.19<b<2); print(time.get_clock_info('monotonic').monotonic); print(abs(time.time()-time.clock_gettime(time.CLOCK_REALTIME))<1)"
timeout 0.5 sleep 5 || echo $?
