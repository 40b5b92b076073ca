package check

import (
	"fmt"
	"math"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/agext/levenshtein"

	"github.com/evalrun/evalrun/eval/evaluator"
	"github.com/evalrun/evalrun/internal/input"
)

// maxSimilar is how many characters, or words, are compared: the time grows with the square.
const maxSimilar = 10_000

// similar makes the checks that say how like two texts are.
func (r *reader) similar(c *evaluator.Config, kind string, v *input.Node) test {
	fold := folded(c)
	list := r.texts(v, true)
	var quoted []string
	for i := range list {
		quoted = append(quoted, shown(list[i]))
		list[i] = fold(list[i])
		if n := length(kind, list[i]); n > maxSimilar {
			r.Errorf(v, "expected at most %d %s, got %d", maxSimilar, unit(kind), n)
			return nil
		}
	}
	if kind == "levenshtein" && c.Has("maxDistance") {
		if c.Has("threshold") {
			r.Errorf(v, "expected either threshold or maxDistance, got both")
		}
		return within(c.Int("maxDistance"), list, fold, strings.Join(quoted, " or "))
	}
	want := fmt.Sprintf("a text like %s by %s", strings.Join(quoted, " or "), kind)
	return ofText(want, func(t string) answer {
		t = fold(t)
		if n := length(kind, t); n > maxSimilar {
			return answer{unfit: fmt.Sprintf("it has %d %s, and %s compares at most %d", n, unit(kind), kind, maxSimilar)}
		}
		score := similarity(kind, t, list)
		return answer{score: score, got: fmt.Sprintf("%.3f for %s", score, shown(t))}
	})
}

// within makes the check of an edit distance.
func within(most int, list []string, fold func(string) string, names string) test {
	return ofText(fmt.Sprintf("a text with an edit distance of at most %d from %s", most, names), func(t string) answer {
		t = fold(t)
		if n := utf8.RuneCountInString(t); n > maxSimilar {
			return answer{unfit: fmt.Sprintf("it has %d characters, and at most %d are compared", n, maxSimilar)}
		}
		nearest := math.MaxInt
		for _, one := range list {
			nearest = min(nearest, levenshtein.Distance(t, one, nil))
		}
		return answer{score: truth(nearest <= most), got: fmt.Sprintf("%d: %s", nearest, shown(t))}
	})
}

func unit(kind string) string {
	if kind == "levenshtein" {
		return "characters"
	}
	return "words"
}

func length(kind, t string) int {
	if kind == "levenshtein" {
		return utf8.RuneCountInString(t)
	}
	n := 0
	for range wordsOf(t) {
		n++
	}
	return n
}

// similarity compares a text with references, of which the nearest counts; BLEU takes all together.
func similarity(kind, t string, references []string) float64 {
	if kind == "bleu" {
		var all [][]string
		for _, one := range references {
			all = append(all, wordsOf(one))
		}
		return bleu(wordsOf(t), all)
	}
	best := 0.0
	for _, one := range references {
		score := 0.0
		switch kind {
		case "levenshtein":
			if longer := max(utf8.RuneCountInString(t), utf8.RuneCountInString(one)); longer > 0 {
				score = 1 - float64(levenshtein.Distance(t, one, nil))/float64(longer)
			} else {
				score = 1
			}
		case "rouge1":
			score = rougeN(wordsOf(t), wordsOf(one), 1)
		case "rouge2":
			score = rougeN(wordsOf(t), wordsOf(one), 2)
		case "rougeL":
			a, b := wordsOf(t), wordsOf(one)
			score = f1(common(a, b), len(a), len(b))
		}
		best = max(best, score)
	}
	return best
}

// wordsOf splits a text into words in lower case: letters and digits in a row. Of scripts without spaces
// each character is a word.
func wordsOf(t string) []string {
	var words []string
	from := -1
	end := func(at int) {
		if from >= 0 {
			words = append(words, strings.ToLower(t[from:at]))
		}
		from = -1
	}
	for i, c := range t {
		switch {
		case unicode.In(c, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai):
			end(i)
			words = append(words, string(c))
		case unicode.IsLetter(c) || unicode.IsDigit(c) || unicode.IsMark(c):
			if from < 0 {
				from = i
			}
		default:
			end(i)
		}
	}
	end(len(t))
	return words
}

// ngrams counts the sequences of n words.
func ngrams(words []string, n int) map[string]int {
	counts := map[string]int{}
	for i := 0; i+n <= len(words); i++ {
		counts[strings.Join(words[i:i+n], " ")]++
	}
	return counts
}

// overlap counts the sequences that are in both, as often as they are in both.
func overlap(a, b map[string]int) int {
	n := 0
	for gram, count := range a {
		n += min(count, b[gram])
	}
	return n
}

func f1(common, a, b int) float64 {
	if a+b == 0 || common == 0 {
		return 0
	}
	return 2 * float64(common) / float64(a+b)
}

// rougeN is the F1 of common sequences of n words.
func rougeN(t, reference []string, n int) float64 {
	return f1(overlap(ngrams(t, n), ngrams(reference, n)), max(0, len(t)-n+1), max(0, len(reference)-n+1))
}

// common returns the length of the longest common subsequence.
func common(a, b []string) int {
	row := make([]int, len(b)+1)
	for _, word := range a {
		diagonal := 0
		for j, other := range b {
			above := row[j+1]
			if word == other {
				row[j+1] = diagonal + 1
			} else {
				row[j+1] = max(above, row[j])
			}
			diagonal = above
		}
	}
	return row[len(b)]
}

// bleu is the geometric mean of the modified precisions of n-grams, with the brevity penalty.
func bleu(t []string, references [][]string) float64 {
	const most = 4
	n := min(most, len(t))
	nearest := math.MaxInt
	for _, one := range references {
		n = min(n, len(one))
		if off := abs(len(one) - len(t)); off < abs(nearest-len(t)) || off == abs(nearest-len(t)) && len(one) < nearest {
			nearest = len(one)
		}
	}
	if n == 0 {
		return 0
	}
	sum := 0.0
	for k := 1; k <= n; k++ {
		counts, best := ngrams(t, k), map[string]int{}
		for _, one := range references {
			for gram, count := range ngrams(one, k) {
				best[gram] = max(best[gram], count)
			}
		}
		sum += math.Log(float64(overlap(counts, best)) / float64(len(t)-k+1))
	}
	score := math.Exp(sum / float64(n)) // the logarithm of 0 is -Inf, and the score 0
	if len(t) < nearest {
		score *= math.Exp(1 - float64(nearest)/float64(len(t)))
	}
	return score
}

func abs(n int) int { return max(n, -n) }
