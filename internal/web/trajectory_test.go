package web

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/testenv"
)

// shape is words as a text, in which those that differ are in brackets.
func shape(all []word) string {
	var b strings.Builder
	for _, w := range all {
		if w.Differs {
			b.WriteString("[" + w.Text + "]")
		} else {
			b.WriteString(w.Text)
		}
	}
	return b.String()
}

func TestLeavesThatDifferHaveTheirPaths(t *testing.T) {
	t.Parallel()
	c := &eval.Comparison{Relation: eval.Equals, Expected: json.RawMessage(`{"a":{"plan":"team","n":8},"list":[1,2],"gone":true,"x y":"the red car","same":null}`),
		Actual: json.RawMessage(`{"a":{"plan":"free","n":8.0},"list":[1,3,4],"x y":"the blue car","same":null,"new":{}}`)}
	l := leavesOf(c)
	var got []string
	for _, r := range l.Rows {
		got = append(got, strings.Join([]string{r.Path, shape(r.Expected), shape(r.Actual)}, " | "))
	}
	want := []string{`$.a.plan | "[team]" | "[free]"`, `$.gone | true | `, `$.list[1] | [2] | [3]`, `$.list[2] |  | 4`, `$["x y"] | "the [red] car" | "the [blue] car"`, `$.new |  | {}`}
	if strings.Join(got, "\n") != strings.Join(want, "\n") || l.Equal != 3 || l.Of != 9 {
		t.Errorf("%d of %d:\n%s", l.Equal, l.Of, strings.Join(got, "\n"))
	}
	c.Relation = eval.Includes
	if l := leavesOf(c); len(l.Rows) != 4 {
		t.Errorf("what may be there besides is a difference: %+v", l.Rows)
	}
	for _, other := range []eval.Comparison{{Relation: eval.Equals, Expected: json.RawMessage(`1`), Actual: json.RawMessage(`2`)}, {Relation: eval.Calls, Expected: json.RawMessage(`[]`), Actual: json.RawMessage(`[]`)},
		{Relation: eval.Equals, Expected: json.RawMessage(`{`), Actual: json.RawMessage(`{}`)}} {
		if leavesOf(&other) != nil {
			t.Errorf("leaves of %+v", other)
		}
	}
}

// A text is cut around the first difference, also where that is in the middle of a character.
func TestLongTextsAreComparedFromTheirFirstDifference(t *testing.T) {
	testenv.NeedSlow(t)
	t.Parallel()
	same := strings.Repeat("ä", 5000)
	x, y := around(same+"one two"+same, same+"one three"+same)
	if !strings.HasPrefix(x, "…ä") || !strings.Contains(x, "one two") || !strings.Contains(y, "one three") || len(x) > 4000 {
		t.Errorf("%.300q %.300q", x, y)
	}
	a, b := words(strings.Repeat("a b ", 5000), strings.Repeat("c d ", 5000))
	if len(a) == 0 || len(b) == 0 {
		t.Error("long texts have no words")
	}
	for text, other := range map[string]string{"": "", "a": "", "a b c": "a x c", "x.y": "x,y"} {
		a, b := words(text, other)
		plain := func(all []word) string { return strings.NewReplacer("[", "", "]", "").Replace(shape(all)) }
		if plain(a) != text || plain(b) != other {
			t.Errorf("%q and %q became %q and %q", text, other, shape(a), shape(b))
		}
	}
}
