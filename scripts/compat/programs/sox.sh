# title: SoX: synthesize and transform sound
# area: Graphics
sox -n -r 8000 -b 16 -D a.wav synth 1 sine 440; sox a.wav -D b.wav reverse speed 2; soxi -D a.wav b.wav; md5sum < a.wav
