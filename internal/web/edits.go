package web

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
)

// The limits of an edit: lines around a change, lines that are shown, and lines that are compared
// with each other.
const (
	aroundEdit  = 3
	maxEdited   = 400
	maxCompared = 1500
)

// editsIn returns the edits in the content of a tool call.
func editsIn(content json.RawMessage) (out []edit) {
	var blocks []struct {
		Type    string `json:"type"`
		Path    string `json:"path"`
		OldText string `json:"oldText"`
		NewText string `json:"newText"`
	}
	if json.Unmarshal(content, &blocks) != nil {
		return nil // content of another form has no edits
	}
	for _, b := range blocks {
		if b.Type == "diff" {
			out = append(out, newEdit(b.Path, b.OldText, b.NewText))
		}
	}
	return out
}

// newEdit compares two texts line by line.
func newEdit(path, before, after string) edit {
	e := edit{Path: path}
	x, y := linesOf(before), linesOf(after)
	inX, inY := inBoth(x, y, maxCompared)
	var all []editedLine
	for i, j := 0, 0; i < len(x) || j < len(y); {
		switch {
		case i < len(x) && !inX[i]:
			all = append(all, editedLine{"del", "-", x[i]})
			e.Removed++
			i++
		case j < len(y) && !inY[j]:
			all = append(all, editedLine{"ins", "+", y[j]})
			e.Added++
			j++
		default:
			all = append(all, editedLine{"", " ", x[i]})
			i, j = i+1, j+1
		}
	}
	e.addHunks(all)
	return e
}

// addHunks adds the lines that are near a change.
func (e *edit) addHunks(all []editedLine) {
	shown := -1 // the last line that was added
	for i, l := range all {
		from, to := max(0, i-aroundEdit), min(len(all), i+aroundEdit+1)
		if !slices.ContainsFunc(all[from:to], func(near editedLine) bool { return near.Class != "" }) {
			continue
		}
		if i > shown+1 {
			e.Lines = append(e.Lines, editedLine{"hunk", "", "…"})
		}
		shown = i
		if len(e.Lines) >= maxEdited {
			e.More++
			continue
		}
		l.Text, _ = cut(l.Text, maxValue)
		e.Lines = append(e.Lines, l)
	}
}

func linesOf(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}

// filesChanged returns the files of all edits of some steps, by their paths. link makes a link to a
// step.
func filesChanged(all []step, link func(i int) string) (out []changedFile) {
	for i := range all {
		for _, e := range all[i].Edits {
			at := slices.IndexFunc(out, func(f changedFile) bool { return f.Path == e.Path })
			if at < 0 {
				at, out = len(out), append(out, changedFile{Path: e.Path, URL: link(i)})
			}
			out[at].Edits++
			out[at].Added += e.Added
			out[at].Removed += e.Removed
		}
	}
	slices.SortFunc(out, func(a, b changedFile) int { return cmp.Compare(a.Path, b.Path) })
	return out
}
