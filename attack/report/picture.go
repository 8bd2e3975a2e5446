package report

import (
	"fmt"
	"strings"

	"github.com/bermhq/berm/attack"
)

// A picture is an SVG as the template draws it: shapes at numbers, nothing that
// a report could write itself.
type picture struct {
	Width, Height float64
	Shapes        []shape
	Title         string // for those who do not see it
	Stretch       bool   // to the width there is
}

// A shape is one mark in a picture: a box, or the sign on one.
type shape struct {
	Kind       string // box, cross, dot, line, text
	X, Y, W, H float64
	R          float64 // of a box: how round
	Class      string
	Text       string
	Link, Tip  string
}

// Marks differ in shape as well as in colour: contained is full, a breach is
// crossed out, unseen has a hole, inconclusive is half, not applicable is hollow.
func sign(x, y, side float64, class, link, tip string) (out []shape) {
	out = append(out, shape{Kind: "box", X: x, Y: y, W: side, H: side, R: side / 5, Class: class, Link: link, Tip: tip})
	switch class {
	case "breached", "blocked":
		out = append(out, shape{Kind: "cross", X: x + side*.27, Y: y + side*.27, W: side * .46, H: side * .46})
	case "unseen":
		out = append(out, shape{Kind: "dot", X: x + side/2, Y: y + side/2, R: side * .2})
	case "unsure":
		out = append(out, shape{Kind: "line", X: x + side*.25, Y: y + side/2, W: side * .5})
	}
	return out
}

func mark(class string) picture {
	return picture{Width: 12, Height: 12, Shapes: sign(.5, .5, 11, class, "", "")}
}

func tip(it item) string { return it.ID + ": " + it.Word }

// mosaic is a square for each case, so many in a row.
func mosaic(items []item, columns int) picture {
	const pitch, side = 13, 11
	columns = max(1, min(columns, len(items)))
	p := picture{Width: float64(columns*pitch - (pitch - side)), Title: tally(items)}
	for i, it := range items {
		x, y := float64(i%columns)*pitch, float64(i/columns)*pitch
		p.Shapes = append(p.Shapes, sign(x, y, side, it.Class, "#"+it.Anchor, tip(it))...)
		p.Height = y + side
	}
	return p
}

// bar is how the verdicts divide, by length.
func bar(c attack.Count) picture {
	p := picture{Width: 600, Height: 14, Stretch: true, Title: fmt.Sprintf("%d contained, %d breached, %d inconclusive, %d not applicable", c.Contained, c.Breached, c.Inconclusive, c.NotApplicable)}
	total := c.Contained + c.Breached + c.Inconclusive + c.NotApplicable
	x := 0.0
	for _, part := range []struct {
		n     int
		class string
	}{{c.Breached, "breached"}, {c.Inconclusive, "unsure"}, {c.Contained, "held"}, {c.NotApplicable, "none"}} {
		if part.n == 0 || total == 0 {
			continue
		}
		w := p.Width * float64(part.n) / float64(total)
		p.Shapes = append(p.Shapes, shape{Kind: "box", X: x, W: w, H: p.Height, Class: part.class})
		x += w
	}
	return p
}

// drawWall shows attacks coming from the left. What was contained stops before
// the wall, what was not is behind it.
func drawWall(items []item) picture {
	const pitch, side, columns, gap = 13, 11, 15, 7
	var before, behind []item
	for _, it := range items {
		if it.Class == "breached" {
			behind = append(behind, it)
		} else {
			before = append(before, it)
		}
	}
	rows := max(1, (len(before)+columns-1)/columns, (len(behind)+3)/4)
	wall := float64(columns*pitch + gap - 2)
	p := picture{Width: wall + 4 + gap + 4*pitch, Height: float64(rows*pitch + 6), Title: tally(items)}
	for i, it := range before { // the first stand at the wall
		x, y := wall-gap-side-float64(i/rows*pitch), float64(i%rows*pitch+4)
		p.Shapes = append(p.Shapes, sign(x, y, side, it.Class, "#"+it.Anchor, tip(it))...)
	}
	for i, it := range behind {
		x, y := wall+4+gap+float64(i/rows*pitch), float64(i%rows*pitch+4)
		p.Shapes = append(p.Shapes, sign(x, y, side, it.Class, "#"+it.Anchor, tip(it))...)
	}
	class := "brick"
	if len(behind) > 0 {
		class = "broken"
	}
	p.Shapes = append(p.Shapes, shape{Kind: "box", X: wall, W: 4, H: p.Height, R: 1, Class: class})
	return p
}

// A gridRow is one family on every rung.
type gridRow struct {
	Family string
	Cells  []gridCell
}

type gridCell struct {
	Count string
	Class string
	picture
}

// grid is families by rungs.
func (v *view) grid() {
	columns := max(8, 24/max(1, len(v.Rungs)))
	for _, f := range v.Families {
		row := gridRow{Family: f.Name}
		for _, rung := range v.Rungs {
			var items []item
			for _, it := range f.Items {
				if it.Isolation == rung {
					items = append(items, it)
				}
			}
			row.Cells = append(row.Cells, gridCell{Count: tally(items), picture: mosaic(items, columns)})
		}
		v.Grid = append(v.Grid, row)
	}
}

// A besideView is what a neighbour felt of one case.
type besideView struct {
	item
	picture
}

// beside draws how long an honest command took alone and next to the case; the
// scale is 0 to 250 ms, and what is longer is at the end of it.
func beside(it item) besideView {
	n := it.Neighbour
	at := func(ms float64) float64 { return 4 + min(max(ms, 0), 250)/250*292 }
	p := picture{Width: 300, Height: 14, Title: fmt.Sprintf("alone %.1f ms, beside it %.1f ms, at worst %.1f ms", n.AloneP50MS, n.P50MS, n.MaxMS)}
	p.Shapes = []shape{
		{Kind: "box", X: 0, Y: 6.5, W: 300, H: 1, Class: "axis"},
		{Kind: "box", X: at(n.P50MS), Y: 5, W: max(1, at(n.MaxMS)-at(n.P50MS)), H: 4, R: 2, Class: "range"},
		{Kind: "box", X: at(n.AloneP50MS) - 1.5, Y: 1, W: 3, H: 12, R: 1, Class: "brick"},
		{Kind: "box", X: at(n.P50MS) - 4, Y: 3, W: 8, H: 8, R: 4, Class: "held"},
	}
	return besideView{it, p}
}

// width is about how wide a text is, in the widest of the usual fonts.
func width(s string, letters float64) (w float64) {
	for _, r := range s {
		switch {
		case strings.ContainsRune("fijlrt-.1", r):
			w += .4
		case r == 'm' || r == 'w' || r > '~':
			w += .95
		default:
			w += .635
		}
	}
	return w * letters
}
