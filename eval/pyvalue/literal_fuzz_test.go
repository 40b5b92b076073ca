package pyvalue

import "testing"

// FuzzLiteral reads anything as a Python literal. What it prints reads as the same again, if it is
// a literal: nan, inf and Ellipsis are none.
func FuzzLiteral(f *testing.F) {
	for _, s := range []string{
		`{'a': (1, 0x1F), u'b': {1, b'\x00'}, 'c': r'x' "y", 1: -.5e3+2j} # z`, `'''it's''' "\101\u00e9\U0001F600"`, "[1_0, 00, 1., ...,\n]", `{"a": [NaN, -Infinity]}`, `(`, `b'é'`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		_, _ = ParseJSON(s)
		v, err := ParseLiteral(s)
		if err != nil {
			return
		}
		printed := Repr(v)
		if again, err := ParseLiteral(printed); err == nil && Repr(again) != printed {
			t.Errorf("%q prints as %s, which prints as %s", s, printed, Repr(again))
		}
	})
}
