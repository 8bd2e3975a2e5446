# title: ImageMagick: draw, convert, compare
# area: Graphics
convert -size 200x100 xc:white -fill blue -draw 'circle 100,50 100,10' a.png
convert a.png -resize 50% -rotate 90 b.jpg; identify -format '%m %w %h\n' a.png b.jpg; convert a.png rgba:- | md5sum
