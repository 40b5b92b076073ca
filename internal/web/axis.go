package web

import (
	"fmt"
	"slices"
	"sort"
	"strconv"
	"time"
)

// These constants compress the axis: a time in which nothing works and that is longer than
// idleShare of all working time gets at most idleWidth of the axis, and all of these together at
// most idleTotal.
const (
	idleShare = 0.15
	idleWidth = 0.13
	idleTotal = 0.30
)

// These are the place of the axis in the drawing, as shares of its width. The names of the lanes
// are left of it.
const (
	axisFrom  = 0.20
	axisWidth = 0.79
)

// axis places times. It grows with time, and is linear between two of its cuts.
type axis struct {
	cuts []time.Time
	// at are the places of the cuts, from 0 to 1.
	at []float64
	// idle are the cuts that begin a time that is drawn shorter than it was.
	idle []int
}

// newAxis makes the axis for some stretches. Its cuts are all times at which something begins or
// ends.
func newAxis(all []stretch) *axis {
	a := &axis{}
	var busy []stretch
	var working time.Duration
	for _, s := range all {
		a.cuts = append(a.cuts, s.From, s.To)
		if s.Lane == laneClock && (s.Kind == "work" || s.Kind == "eval") {
			busy, working = append(busy, s), working+s.For()
		}
	}
	slices.SortFunc(a.cuts, time.Time.Compare)
	a.cuts = slices.CompactFunc(a.cuts, time.Time.Equal)
	if len(a.cuts) < 2 {
		return a
	}
	var linear time.Duration
	for i := range a.cuts[:len(a.cuts)-1] {
		from, to := a.cuts[i], a.cuts[i+1]
		works := slices.ContainsFunc(busy, func(s stretch) bool { return s.From.Before(to) && from.Before(s.To) })
		if !works && working > 0 && float64(to.Sub(from)) > idleShare*float64(working) {
			a.idle = append(a.idle, i)
		} else {
			linear += to.Sub(from)
		}
	}
	fixed := 0.0
	if n := len(a.idle); n > 0 {
		fixed = min(idleWidth, idleTotal/float64(n))
		if linear == 0 {
			fixed = 1 / float64(n)
		}
	}
	x, rest := 0.0, 1-fixed*float64(len(a.idle))
	a.at = append(a.at, 0)
	for i := range a.cuts[:len(a.cuts)-1] {
		if slices.Contains(a.idle, i) {
			x += fixed
		} else {
			x += rest * float64(a.cuts[i+1].Sub(a.cuts[i])) / float64(linear)
		}
		a.at = append(a.at, min(x, 1))
	}
	return a
}

// place returns the place of a time, from 0 to 1.
func (a *axis) place(t time.Time) float64 {
	if len(a.at) == 0 || t.Before(a.cuts[0]) {
		return 0
	}
	i := sort.Search(len(a.cuts), func(i int) bool { return a.cuts[i].After(t) }) - 1
	if i == len(a.cuts)-1 {
		return 1
	}
	return a.at[i] + (a.at[i+1]-a.at[i])*float64(t.Sub(a.cuts[i]))/float64(a.cuts[i+1].Sub(a.cuts[i]))
}

// drawing is a timeline as it is drawn.
type drawing struct {
	Height int
	Lanes  []laneLabel
	Bars   []drawnBar
	Breaks []drawnBreak
	Ticks  []tick
	// Merged counts the stretches that were merged with others, because they would be one line.
	Merged int
}

type laneLabel struct {
	Name  string
	Y, At int
}

type drawnBar struct {
	Kind, Title, Text, Note string
	X, Width, TextX, NoteX  string
	Y, Height, TextY        int
	// Moment marks a bar without a width. NoteEnds is set if the note stands before the bar.
	Moment, NoteEnds bool
}

type drawnBreak struct {
	X, Width, Middle, Text string
	// Grows is how long it has lasted, if it still does.
	Grows int64
}

type tick struct {
	X, Text, Anchor string
}

// The heights of the drawing in pixels, and the most lines that one lane has.
const (
	top      = 30
	lane     = 30
	waitLine = 22
	maxLines = 12
	// nearest is the least distance between two bars of a lane: about a pixel.
	nearest = 0.001
)

func formatAxis(x float64) string {
	return strconv.FormatFloat(100*(axisFrom+axisWidth*x), 'f', 3, 64) + "%"
}

func draw(all []stretch) *drawing {
	a := newAxis(all)
	if len(a.at) == 0 {
		return nil
	}
	d := &drawing{}
	y := top
	for _, name := range []string{laneClock, laneSegments, laneWaits, laneDelivered, laneTools, laneScores} {
		var own []stretch
		for _, s := range all {
			if s.Lane == name {
				own = append(own, s)
			}
		}
		if len(own) == 0 {
			continue
		}
		height := lane
		if name == laneWaits {
			height = waitLine*min(len(own), maxLines) + lane - waitLine
		}
		d.Lanes = append(d.Lanes, laneLabel{name, y + 17, y - 3})
		d.addLane(a, own, y)
		y += height
	}
	for _, i := range a.idle {
		took := a.cuts[i+1].Sub(a.cuts[i])
		b := drawnBreak{
			X: formatAxis(a.at[i]), Width: width(a.at[i], a.at[i+1]), Middle: formatAxis((a.at[i] + a.at[i+1]) / 2),
			Text: "// " + formatDuration(took) + " //",
		}
		if i == len(a.cuts)-2 && slices.ContainsFunc(all, func(s stretch) bool { return s.Open }) {
			b.Grows = took.Milliseconds()
		}
		d.Breaks = append(d.Breaks, b)
	}
	first, last := a.cuts[0], a.cuts[len(a.cuts)-1]
	d.Ticks = []tick{
		{formatAxis(0), first.UTC().Format(time.TimeOnly), "start"},
		{formatAxis(1), last.UTC().Format(time.TimeOnly) + " UTC", "end"},
	}
	d.Height = y + 22
	return d
}

// width returns the width of a bar, which is visible however short the time is.
func width(from, to float64) string {
	return strconv.FormatFloat(100*max(axisWidth*(to-from), 0.0025), 'f', 3, 64) + "%"
}

// addLane draws the stretches of a lane. Stretches that would be nearer than a pixel become one
// bar.
func (d *drawing) addLane(a *axis, own []stretch, y int) {
	type mark struct {
		from, to float64
		n        int
		stretch
		// last is the end of the last stretch that was merged into it.
		last time.Time
	}
	var marks []mark
	for _, s := range own {
		m := mark{a.place(s.From), a.place(s.To), 1, s, s.To}
		if last := len(marks) - 1; len(own) > 300 && last >= 0 && m.from-marks[last].to < nearest {
			marks[last].to, marks[last].n = max(marks[last].to, m.to), marks[last].n+1
			if s.To.After(marks[last].last) {
				marks[last].last = s.To
			}
			d.Merged++
			continue
		}
		marks = append(marks, m)
	}
	for i, m := range marks {
		b := drawnBar{
			Kind: m.Kind, X: formatAxis(m.from), Width: width(m.from, m.to), TextX: formatAxis(m.from + 0.005),
			Y: y, Height: 20, TextY: y + 14, Moment: m.Lane == laneDelivered,
		}
		b.Title = m.Label + ", " + formatDuration(m.For())
		text := m.Label
		switch {
		case m.n > 1:
			text = fmt.Sprintf("%d of them", m.n)
			if m.Lane == laneTools {
				text = fmt.Sprintf("%d calls", m.n)
			}
			b.Title = text + " in " + formatDuration(m.last.Sub(m.From))
		case m.Lane == laneClock:
			text += " " + formatDuration(m.For())
		case m.Lane == laneWaits:
			line := min(i, maxLines-1)
			b.Y, b.Height, b.TextY = y+waitLine*line, 18, y+waitLine*line+13
			if i < maxLines {
				b.Note, b.NoteX = short(m.Label, 34), formatAxis(m.to+0.006)
				if m.to > 0.65 {
					b.NoteX, b.NoteEnds = formatAxis(m.from-0.006), true
				}
			}
			text = ""
		}
		if float64(len([]rune(text))) < (m.to-m.from)*130 { // about so many characters fit
			b.Text = text
		}
		d.Bars = append(d.Bars, b)
	}
}
