package check

import (
	"context"
	"fmt"
	"math"
	"regexp"
	"regexp/syntax"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/evalrun/evalrun/eval/evaluator"
	"github.com/evalrun/evalrun/eval/pyvalue"
	"github.com/evalrun/evalrun/internal/input"
)

// ofText makes a test of a text.
func ofText(want string, f func(t string) answer) test {
	return func(_ context.Context, _ *scene, v any) answer {
		t, unfit := text(v)
		if unfit != "" {
			return answer{want: want, unfit: unfit}
		}
		a := f(t)
		a.want = want
		if a.got == "" {
			a.got = shownValue(v)
		}
		return a
	}
}

// folded says how texts are made equal before they are compared.
func folded(c *evaluator.Config) func(string) string {
	ignoreCase, ignoreSpace := c.Bool("ignoreCase"), c.Bool("ignoreSpace")
	return func(s string) string {
		if ignoreCase {
			s = pyvalue.Lower(s)
		}
		if ignoreSpace {
			s = collapse(s)
		}
		return s
	}
}

// texts reads the texts of a check: one, or several in an array if more is set.
func (r *reader) texts(v *input.Node, more bool) []string {
	items := []*input.Node{v}
	if v.Kind == input.Array && more {
		if items = v.Items; len(items) == 0 {
			r.Errorf(v, "expected at least one text")
		}
	}
	var out []string
	for _, item := range items {
		switch {
		case item.Kind == input.Number || item.Kind == input.Bool: // a column of a data set may hold one
		case item.Kind != input.String:
			r.Errorf(item, "expected a text, got %s", item.Kind)
		case item.Text == "":
			r.Errorf(item, "expected a text that is not empty")
		}
		out = append(out, item.Text)
	}
	return out
}

// substrings makes the checks of what is in a text, at its beginning or end.
func (r *reader) substrings(c *evaluator.Config, kind string, v *input.Node) test {
	fold := folded(c)
	list := r.texts(v, v.Kind == input.Array && kind != "contains" && kind != "startsWith" && kind != "endsWith")
	var quoted []string
	for i := range list {
		quoted = append(quoted, shown(list[i]))
		list[i] = fold(list[i])
	}
	names := strings.Join(quoted, ", ")
	switch kind {
	case "startsWith":
		return ofText("a text that starts with "+names, func(t string) answer {
			return answer{score: truth(strings.HasPrefix(fold(t), list[0]))}
		})
	case "endsWith":
		return ofText("a text that ends with "+names, func(t string) answer {
			return answer{score: truth(strings.HasSuffix(fold(t), list[0])), got: ending(t)}
		})
	case "containsAny":
		return ofText("a text that contains one of "+names, func(t string) answer {
			t = fold(t)
			for _, one := range list {
				if strings.Contains(t, one) {
					return answer{score: 1}
				}
			}
			return answer{}
		})
	}
	want := "a text that contains " + names
	if len(list) > 1 {
		want = "a text that contains all of " + names
	}
	return ofText(want, func(t string) answer {
		folded := fold(t)
		var lacks []string
		for i, one := range list {
			if !strings.Contains(folded, one) {
				lacks = append(lacks, quoted[i])
			}
		}
		if len(lacks) == 0 || len(list) == 1 {
			return answer{score: truth(len(lacks) == 0)}
		}
		return answer{got: shown(t) + " without " + strings.Join(lacks, ", ")}
	})
}

// ending shows the end of a text.
func ending(t string) string {
	const most = 200
	if len(t) <= most {
		return shown(t)
	}
	from := len(t) - most
	for from < len(t) && !utf8.RuneStart(t[from]) {
		from++
	}
	return "…" + strconv.Quote(t[from:])
}

// equals compares with a text, or with any other value of JSON.
func (r *reader) equals(c *evaluator.Config, v *input.Node) test {
	fold := folded(c)
	expected, err := pyvalue.Parse(v.JSON())
	if err != nil {
		r.Errorf(v, "%v", err)
		return nil
	}
	if s, ok := expected.(string); ok {
		want := fold(s)
		return ofText(shown(s), func(t string) answer { return answer{score: truth(fold(t) == want)} })
	}
	for _, name := range textParameters {
		if c.Bool(name) {
			r.Errorf(v, "only a text is compared with %s, got %s", name, v.Kind)
		}
	}
	return func(_ context.Context, _ *scene, actual any) answer {
		a := answer{want: shownValue(expected), got: shownValue(actual)}
		if t, ok := actual.(string); ok {
			if parsed, err := pyvalue.Parse([]byte(t)); err == nil && strings.TrimSpace(t) != "" {
				actual = parsed
			}
		}
		a.score = truth(equal(expected, actual))
		return a
	}
}

// equal compares two values of JSON. Unlike in Python true is not 1.
func equal(a, b any) bool {
	switch a := a.(type) {
	case bool:
		other, ok := b.(bool)
		return ok && a == other
	case pyvalue.Number:
		_, ok := b.(pyvalue.Number)
		return ok && pyvalue.Equal(a, b)
	case []any:
		list, ok := b.([]any)
		if !ok || len(a) != len(list) {
			return false
		}
		for i := range a {
			if !equal(a[i], list[i]) {
				return false
			}
		}
		return true
	case *pyvalue.Object:
		o, ok := b.(*pyvalue.Object)
		if !ok || len(a.Values) != len(o.Values) {
			return false
		}
		for key, value := range a.Values {
			if other, ok := o.Values[key]; !ok || !equal(value, other) {
				return false
			}
		}
		return true
	}
	return pyvalue.Equal(a, b)
}

// maxRegexWork bounds the time of a regular expression, which grows with the product of its size and
// that of the text: it is some seconds.
const maxRegexWork = 1 << 30

func (r *reader) regex(c *evaluator.Config, v *input.Node) test {
	pattern := v.Text
	if c.Bool("ignoreCase") {
		pattern = "(?i)" + pattern
	}
	re, size, err := compile(pattern)
	if err != nil {
		r.Errorf(v, "%v", err)
		return nil
	}
	want := "a text that matches " + shown(v.Text)
	return ofText(want, func(t string) answer {
		if len(t) > maxRegexWork/size {
			return answer{unfit: fmt.Sprintf("it has %d bytes, and this expression takes at most %d; path chooses a part",
				len(t), maxRegexWork/size)}
		}
		return answer{score: truth(re.MatchString(t))}
	})
}

// compile compiles a regular expression, and says how many instructions it has.
func compile(pattern string) (*regexp.Regexp, int, error) {
	tree, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return nil, 0, fmt.Errorf("%w; expressions are RE2's, without look-ahead, look-behind and back-references", err)
	}
	program, err := syntax.Compile(tree.Simplify())
	if err != nil {
		return nil, 0, err
	}
	re, err := regexp.Compile(pattern)
	return re, len(program.Inst), err
}

// numberInText matches a number, which may have commas between groups of three digits.
var numberInText = regexp.MustCompile(`[-+]?(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?|[-+]?\.[0-9]+`)

// maxNumberText is how much of the end of a text is searched for a number.
const maxNumberText = 64 << 10

// number compares a number with a tolerance.
func (r *reader) number(c *evaluator.Config, v *input.Node) test {
	expected, err := strconv.ParseFloat(v.Text, 64)
	if v.Kind != input.Number && v.Kind != input.String || err != nil || math.IsNaN(expected) || math.IsInf(expected, 0) {
		r.Errorf(v, "expected a number, got %s", v.JSON())
		return nil
	}
	off := max(c.Float("tolerance"), math.Abs(expected)*c.Float("relativeTolerance"))
	want := "the number " + v.Text
	if off > 0 {
		want += fmt.Sprintf(", at most %g off", off)
	}
	return func(_ context.Context, _ *scene, actual any) answer {
		a := answer{want: want}
		n, ok := numberOf(actual)
		if !ok {
			a.unfit = "there is no number in " + shownValue(actual)
			return a
		}
		a.got = strconv.FormatFloat(n, 'g', -1, 64)
		// A difference such as 0.3 - 0.2 is not exactly what people write.
		rounding := 0.0
		if off > 0 {
			rounding = 1e-12*off + 0x1p-51*max(math.Abs(n), math.Abs(expected))
		}
		a.score = truth(math.Abs(n-expected) <= off+rounding)
		return a
	}
}

// numberOf returns the number that a value is, or the last one in a text.
func numberOf(v any) (float64, bool) {
	switch v := v.(type) {
	case pyvalue.Number:
		return v.Float, !math.IsNaN(v.Float) && !math.IsInf(v.Float, 0)
	case string:
		t := strings.ReplaceAll(v[max(0, len(v)-maxNumberText):], "\u2212", "-") // the minus sign of typography
		all := numberInText.FindAllStringIndex(t, -1)
		if len(all) == 0 {
			return 0, false
		}
		at := all[len(all)-1]
		literal := t[at[0]:at[1]]
		if before, _ := utf8.DecodeLastRuneInString(t[:at[0]]); at[0] > 0 && (unicode.IsLetter(before) || unicode.IsDigit(before)) {
			literal = strings.TrimLeft(literal, "-+") // as in 2020-21
		}
		n, err := strconv.ParseFloat(strings.ReplaceAll(literal, ",", ""), 64)
		return n, err == nil
	}
	return 0, false
}

// choice finds the letter that a text chooses.
func (r *reader) choice(c *evaluator.Config, v *input.Node) test {
	letters := strings.ToUpper(c.String("choices"))
	expected := strings.ToUpper(v.Text)
	for _, letter := range letters {
		if letter < 'A' || letter > 'Z' {
			r.Errorf(c.Get("choices"), "expected letters such as ABCD, got %q", letters)
			return nil
		}
	}
	if len(expected) != 1 || !strings.Contains(letters, expected) {
		r.Errorf(v, "expected one of the letters %s, got %q", letters, v.Text)
		return nil
	}
	set := "([" + letters + "])"
	forms := []*regexp.Regexp{
		regexp.MustCompile(`^[\s*("'\[]*(?i:` + set + `)[\s*)"'\].:]*$`),
		regexp.MustCompile(`(?i:\banswer\b[*\s]*(?:is|:|=)?[:\s]*(?:option|choice)?)[\s*("'\[]*` + set + `\b`),
		regexp.MustCompile(`^[\s*(]*` + set + `[*]*[).:]`),
		regexp.MustCompile(`(?:\(|\[|\*\*)` + set + `(?:\)|\]|\*\*)`),
	}
	return ofText("the choice "+expected, func(t string) answer {
		if len(t) > 1<<20 {
			return answer{unfit: fmt.Sprintf("it has %d bytes, and a choice is found in at most 1 MiB", len(t))}
		}
		for _, form := range forms {
			if all := form.FindAllStringSubmatch(t, -1); len(all) > 0 {
				chosen := strings.ToUpper(all[len(all)-1][1])
				return answer{score: truth(chosen == expected), got: "the choice " + chosen}
			}
		}
		return answer{unfit: shown(t) + " names none of " + letters + " as its choice"}
	})
}

// span is a range of numbers; nil means that there is no limit.
type span struct{ least, most *int }

// span reads an object with min and max.
func (r *reader) span(v *input.Node) span {
	f := r.Object(v)
	var s span
	if f.Has("min") {
		n := f.Int("min", 0, 0, mostInt)
		s.least = &n
	}
	if f.Has("max") {
		n := f.Int("max", 0, 0, mostInt)
		s.most = &n
	}
	if s.least == nil && s.most == nil {
		r.Errorf(v, `expected {"min": …, "max": …}, or one of both`)
	} else if s.least != nil && s.most != nil && *s.least > *s.most {
		r.Errorf(v, "min is more than max")
	}
	f.Refuse()
	return s
}

func (s span) has(n int) bool {
	return (s.least == nil || n >= *s.least) && (s.most == nil || n <= *s.most)
}

// String says which numbers there may be.
func (s span) String() string {
	switch {
	case s.least != nil && s.most != nil && *s.least == *s.most:
		return fmt.Sprintf("exactly %d", *s.least)
	case s.least != nil && s.most != nil:
		return fmt.Sprintf("%d to %d", *s.least, *s.most)
	case s.least != nil:
		return fmt.Sprintf("at least %d", *s.least)
	}
	return fmt.Sprintf("at most %d", *s.most)
}

// counted counts words or characters.
func (r *reader) counted(kind string, v *input.Node) test {
	s := r.span(v)
	if len(r.Problems) > 0 && s.least == nil && s.most == nil {
		return nil
	}
	return ofText(fmt.Sprintf("%s %s", s, kind), func(t string) answer {
		n := utf8.RuneCountInString(t)
		if kind == "words" {
			n = 0
			for range strings.FieldsSeq(t) {
				n++
			}
		}
		return answer{score: truth(s.has(n)), got: fmt.Sprintf("%d: %s", n, shown(t))}
	})
}
