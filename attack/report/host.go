package report

import "fmt"

// A host is the picture of where the walls stand: boxes around each other with
// the program in the middle, and ways out of them below.
type host struct {
	picture
	Program shape
}

const (
	hostWidth = 400.0
	letters   = 11.0
	chipHigh  = 19.0
	chipGap   = 5.0
)

// drawHost lays the picture out for the width of a phone.
func drawHost(layers []layerView) host {
	h := host{picture: picture{Width: hostWidth, Title: "the walls around a program, and how many attacks came against each"}}
	in, out := layers[:len(nested)], layers[len(nested):]
	y := 8.0
	h.text(12, y+14, "This host", "place")
	h.text(hostWidth-12, y+14, "canaries, counters, servers that must not be called", "aside right")
	y += 28
	tops := []float64{}
	for i, l := range in {
		inset := 10 + float64(i)*12
		tops = append(tops, y)
		h.text(inset+10, y+16, l.Name, "layer")
		y = h.chips(l.Walls, inset+10, y+24, hostWidth-2*inset-20) + 8
	}
	inset := 10 + float64(len(in))*12
	core := shape{Kind: "box", X: inset, Y: y, W: hostWidth - 2*inset, H: 34, R: 5, Class: "core"}
	h.Program = core
	h.Shapes = append(h.Shapes, core, shape{Kind: "text", X: hostWidth / 2, Y: y + 21.5, Class: "program", Text: "a hostile program"})
	bottom := y + core.H
	var frames []shape
	for i := range tops {
		inset := 10 + float64(i)*12
		end := bottom + float64(len(tops)-i)*10
		frames = append(frames, shape{Kind: "box", X: inset, Y: tops[i], W: hostWidth - 2*inset, H: end - tops[i], R: 8, Class: fmt.Sprintf("frame frame%d", i)})
	}
	end := bottom + float64(len(tops))*10
	y = end + 26
	const room = (hostWidth - 30) / 2
	for i := 0; i < len(out); i += 2 {
		low := y
		for k, l := range out[i:min(i+2, len(out))] {
			x := 10 + float64(k)*(room+10)
			if i == 0 {
				frames = append(frames, shape{Kind: "box", X: x + room/2 - .75, Y: bottom, W: 1.5, H: y - bottom, Class: "way"})
			}
			h.text(x+8, y+16, l.Name, "layer")
			low = max(low, h.chips(l.Walls, x+8, y+24, room-16)+6)
		}
		for k := range out[i:min(i+2, len(out))] {
			frames = append(frames, shape{Kind: "box", X: 10 + float64(k)*(room+10), Y: y, W: room, H: low - y, R: 8, Class: "frame door"})
		}
		y = low + 10
	}
	h.Height = y + 2
	whole := shape{Kind: "box", X: 1, Y: 1, W: hostWidth - 2, H: h.Height - 2, R: 10, Class: "frame ground"}
	h.Shapes = append(append([]shape{whole}, frames...), h.Shapes...)
	return h
}

func (h *host) text(x, y float64, s, class string) {
	h.Shapes = append(h.Shapes, shape{Kind: "text", X: x, Y: y, Class: class, Text: s})
}

// chips sets walls as words in lines, and returns where the next line would be.
func (h *host) chips(walls []wallView, left, top, room float64) float64 {
	x, y := left, top
	for _, w := range walls {
		count := ""
		if w.Count > 0 {
			count = fmt.Sprint(w.Count)
		}
		wide := width(w.Name, letters) + 14
		if count != "" {
			wide += width(count, letters) + 6
		}
		if x > left && x+wide > left+room {
			x, y = left, y+chipHigh+chipGap
		}
		h.Shapes = append(h.Shapes, shape{Kind: "box", X: x, Y: y, W: wide, H: chipHigh, R: 4, Class: "chip " + w.Class, Link: "#" + w.Anchor, Tip: w.About},
			shape{Kind: "text", X: x + 7, Y: y + 13.2, Class: "name " + w.Class, Text: w.Name})
		if count != "" {
			h.Shapes = append(h.Shapes, shape{Kind: "text", X: x + wide - 7, Y: y + 13.2, Class: "count " + w.Class, Text: count})
		}
		x += wide + chipGap
	}
	return y + chipHigh
}
