# title: FFmpeg: encode, decode, filter
# area: Graphics
ffmpeg -v error -f lavfi -i testsrc=d=2:s=320x240:r=10 -threads 1 -c:v libx264 -preset ultrafast -bitexact a.mp4
ffmpeg -v error -i a.mp4 -vf scale=160:120 -f framemd5 -bitexact - | tail -3
ffprobe -v error -show_entries stream=codec_name,width,height,nb_frames -of csv a.mp4
