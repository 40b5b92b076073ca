package web

import (
	"slices"
	"unicode"
)

// word is a part of a text that is compared with another: the same in both, or in one of them alone.
type word struct {
	Text    string
	Differs bool
}

// maxWords is how many words of what differs between two texts are compared with each other. Longer
// parts differ as a whole.
const maxWords = 600

// words marks in two texts the words that are in one of them alone.
func words(a, b string) (inA, inB []word) {
	x, y := split(a), split(b)
	begin, end := 0, 0
	for begin < min(len(x), len(y)) && x[begin] == y[begin] {
		begin++
	}
	for end < min(len(x), len(y))-begin && x[len(x)-1-end] == y[len(y)-1-end] {
		end++
	}
	sameX, sameY := common(x[begin:len(x)-end], y[begin:len(y)-end])
	return marked(x, begin, end, sameX), marked(y, begin, end, sameY)
}

// split parts a text into words, spaces, and single other characters.
func split(text string) (out []string) {
	kind := func(r rune) int {
		switch {
		case unicode.IsLetter(r), unicode.IsDigit(r), r == '_':
			return 1
		case unicode.IsSpace(r):
			return 2
		}
		return 0
	}
	from, last := 0, -1
	for i, r := range text {
		k := kind(r)
		if i > from && (k != last || k == 0) {
			out, from = append(out, text[from:i]), i
		}
		last = k
	}
	if from < len(text) {
		out = append(out, text[from:])
	}
	return out
}

// common marks the words of a longest common subsequence of both.
func common(x, y []string) (inX, inY []bool) {
	inX, inY = make([]bool, len(x)), make([]bool, len(y))
	if len(x) > maxWords || len(y) > maxWords {
		return inX, inY
	}
	length := make([][]uint16, len(x)+1)
	for i := range length {
		length[i] = make([]uint16, len(y)+1)
	}
	for i, w := range slices.Backward(x) {
		for j, v := range slices.Backward(y) {
			if w == v {
				length[i][j] = length[i+1][j+1] + 1
			} else {
				length[i][j] = max(length[i+1][j], length[i][j+1])
			}
		}
	}
	for i, j := 0, 0; i < len(x) && j < len(y); {
		switch {
		case x[i] == y[j]:
			inX[i], inY[j] = true, true
			i, j = i+1, j+1
		case length[i+1][j] >= length[i][j+1]:
			i++
		default:
			j++
		}
	}
	return inX, inY
}

// marked joins words that are marked alike. Those before begin and the last ones are the same.
func marked(all []string, begin, end int, same []bool) (out []word) {
	for i, text := range all {
		differs := i >= begin && i < len(all)-end && !same[i-begin]
		if n := len(out); n > 0 && out[n-1].Differs == differs {
			out[n-1].Text += text
			continue
		}
		out = append(out, word{text, differs})
	}
	return out
}
