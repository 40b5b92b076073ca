package web

import (
	"slices"
	"unicode"
)

// word is a part of a text that is compared with another. Both texts have it, or only one.
type word struct {
	Text    string
	Differs bool
}

// maxWords is the most words of a difference between two texts that are compared with each other.
// Longer parts differ as a whole.
const maxWords = 600

// words marks in two texts the words that are in one of them alone.
func words(a, b string) (inA, inB []word) {
	x, y := split(a), split(b)
	sameX, sameY := inBoth(x, y, maxWords)
	return marked(x, sameX), marked(y, sameY)
}

// inBoth marks the common parts of two lists, in order. Between equal beginnings and ends it
// compares at most most elements with each other. Longer parts differ as a whole.
func inBoth(x, y []string, most int) (inX, inY []bool) {
	begin, end := 0, 0
	for begin < min(len(x), len(y)) && x[begin] == y[begin] {
		begin++
	}
	for end < min(len(x), len(y))-begin && x[len(x)-1-end] == y[len(y)-1-end] {
		end++
	}
	midX, midY := common(x[begin:len(x)-end], y[begin:len(y)-end], most)
	same := func(n int) []bool { return slices.Repeat([]bool{true}, n) }
	return slices.Concat(same(begin), midX, same(end)), slices.Concat(same(begin), midY, same(end))
}

// split splits a text into words, spaces, and single other characters.
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
func common(x, y []string, most int) (inX, inY []bool) {
	inX, inY = make([]bool, len(x)), make([]bool, len(y))
	if len(x) > most || len(y) > most {
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

// marked joins words with the same mark.
func marked(all []string, same []bool) (out []word) {
	for i, text := range all {
		if n := len(out); n > 0 && out[n-1].Differs == !same[i] {
			out[n-1].Text += text
			continue
		}
		out = append(out, word{text, !same[i]})
	}
	return out
}
