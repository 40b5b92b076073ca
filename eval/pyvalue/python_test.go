package pyvalue

import (
	"math"
	"strings"
	"testing"
)

// The right-hand sides were printed by Python 3.11.
func TestRepr(t *testing.T) {
	for _, v := range []struct{ json, want string }{
		{`null`, `None`}, {`true`, `True`}, {`false`, `False`},
		{`8`, `8`}, {`-0`, `0`}, {`-0.0`, `-0.0`}, {`8.0`, `8.0`}, {`0.1`, `0.1`}, {`100000000000000000000000`, `100000000000000000000000`},
		{`1e15`, `1000000000000000.0`}, {`1e16`, `1e+16`}, {`123456789012345680.0`, `1.2345678901234568e+17`},
		{`0.0001`, `0.0001`}, {`0.00001`, `1e-05`}, {`1.5e-7`, `1.5e-07`}, {`1e100`, `1e+100`}, {`0.0`, `0.0`},
		{`"a"`, `'a'`}, {`"it's"`, `"it's"`}, {`"\""`, `'"'`}, {`"'\""`, `'\'"'`},
		{`"a\\b"`, `'a\\b'`}, {`"\n\t\r\u0000\u007f"`, `'\n\t\r\x00\x7f'`},
		{`"é漢😀"`, `'é漢😀'`}, {`"\u00a0\u200b\u2028"`, `'\xa0\u200b\u2028'`}, {`"\ue000\udbff\udfff"`, "'\\ue000\\U0010ffff'"},
		{`[]`, `[]`}, {`[1,"a",[null]]`, `[1, 'a', [None]]`},
		{`{}`, `{}`}, {`{"b":1,"a":{"c":[]}}`, `{'b': 1, 'a': {'c': []}}`}, {`{"a":1,"b":2,"a":3}`, `{'a': 3, 'b': 2}`},
	} {
		value, err := Parse([]byte(v.json))
		if err != nil {
			t.Fatal(err)
		}
		if got := Repr(value); got != v.want {
			t.Errorf("repr(%s) = %s, want %s", v.json, got, v.want)
		}
	}
	if got := Str("it's"); got != "it's" {
		t.Errorf("str of a string is %s", got)
	}
	if ReprFloat(math.Inf(-1)) != "-inf" || ReprFloat(math.NaN()) != "nan" {
		t.Error("infinities and NaN")
	}
}

func TestLower(t *testing.T) {
	for s, want := range map[string]string{
		"ABC": "abc", "İ": "i̇", "ΑΣ": "ας", "ΑΣΑ Σ": "ασα σ", "ΑΣ.": "ας.", "ẞ": "ß", "Ǆ": "ǆ", "": "", "Å": "å",
	} {
		if got := Lower(s); got != want {
			t.Errorf("toLower(%q) = %q, want %q", s, got, want)
		}
	}
	for n := range 300 {
		if s := strings.Repeat("A", n) + " ΑΣ."; !strings.HasSuffix(Lower(s), " ας.") {
			t.Errorf("after %d characters: %q", n, Lower(s))
		}
	}
}

func TestEqual(t *testing.T) {
	for _, v := range []struct {
		a, b string
		want bool
	}{
		{`1`, `1.0`, true}, {`true`, `1`, true}, {`true`, `1.0`, true}, {`false`, `0`, true}, {`true`, `2`, false}, {`null`, `0`, false},
		{`"1"`, `1`, false}, {`[1]`, `[true]`, true}, {`[1]`, `[1,2]`, false}, {`{"a":1}`, `{"a":1.0}`, true}, {`{"a":1}`, `{"b":1}`, false},
		{`{"a":null}`, `{"b":null}`, false}, {`9007199254740993`, `9007199254740992.0`, false}, {`9007199254740992`, `9007199254740992.0`, true},
		{`9007199254740993`, `9007199254740993`, true}, {`18446744073709551616`, `18446744073709551616.0`, true}, {`[]`, `{}`, false}, {`""`, `""`, true},
		{`18446744073709551617`, `18446744073709551616.0`, false}, {`100000000000000000000001`, `1e23`, false},
	} {
		a, _ := Parse([]byte(v.a))
		b, _ := Parse([]byte(v.b))
		if Equal(a, b) != v.want || Equal(b, a) != v.want {
			t.Errorf("%s == %s should be %v", v.a, v.b, v.want)
		}
	}
}

func TestPythonLiteral(t *testing.T) {
	for _, v := range []struct{ literal, want string }{
		{`{'city': 'Paris', 'n': 1, 'f': 1.5, 'ok': True, 'no': None}`, `{'city': 'Paris', 'n': 1, 'f': 1.5, 'ok': True, 'no': None}`},
		{`{"a": [1, 2,], 'b': (3, 'x'), 'c': (4), 'd': (5,)}`, `{'a': [1, 2], 'b': (3, 'x'), 'c': 4, 'd': (5,)}`},
		{`'it\'s \x41\u00e9\q'`, `"it's Aé\\q"`},
		{`-1e-5`, `-1e-05`}, {`[1., -.5, +2]`, `[1.0, -0.5, 2]`}, {` [ ] `, `[]`}, {`{}`, `{}`}, {`()`, `()`},
		{`{'a': u'x', 'b': R'\n\'', 'c': b'\x00\u0041', 'd': Br'\x'}`, `{'a': 'x', 'b': "\\n\\'", 'c': b'\x00\\u0041', 'd': b'\\x'}`},
		{"'''it's\n\"two\" lines'''", `'it\'s\n"two" lines'`}, {`'a' "b"  u'c'`, `'abc'`}, {`'\101\0\7z'`, `'A\x00\x07z'`}, {"'a\\\nb'", `'ab'`},
		{`[0x1F, 0o17, 0b11, 1_000, 1_0.2_5, 00, -0, 1E3, 0XfF]`, `[31, 15, 3, 1000, 10.25, 0, 0, 1000.0, 255]`},
		{"{'a': 1, # one\n 'b': 2\n} # end", `{'a': 1, 'b': 2}`}, {"\n{'a': 1}\n", `{'a': 1}`}, {`({'a': 1})`, `{'a': 1}`},
		{`{1: 'x', 'a': (1, [2])}`, `{1: 'x', 'a': (1, [2])}`}, {`{'a'}`, `{'a'}`}, {`b'\xe9\\'`, `b'\xe9\\'`}, {`set()`, `set()`}, {`...`, `Ellipsis`}, {`1+2j`, `(1+2j)`}, {`- 1`, `-1`},
		{`9007199254740993`, `9007199254740993`}, {`1e999`, `inf`},
	} {
		got, err := ParseLiteral(v.literal)
		if err != nil || Repr(got) != v.want {
			t.Errorf("%s: got %s, %v, want %s", v.literal, Repr(got), err, v.want)
		}
	}
	for _, bad := range []string{``, `{`, `[1 2]`, `'a`, `foo`, `__import__('os')`, `1 2`, `'\x4'`, `nan`, `NaN`, `007`, `.`, `+`, `1__0`, `1_`, `0x`, `1,`, `--1`, `1+2`, `f'x'`, `'a' b'b'`, `{[1]: 2}`, `{'a': 1, 'b'}`, `{'a', 'b': 1}`,
		`{'a': 1,,}`, `dict(a=1)`, `'''a`, `r'\`, `'\N{DASH}'`, `b'é'`, `True1`, `1if`, `1e`, "'a\x00'"} {
		if got, err := ParseLiteral(bad); err == nil {
			t.Errorf("%s: got %s, want an error", bad, Repr(got))
		}
	}
}

func TestResolvePath(t *testing.T) {
	const document = `{"a":{"b":[{"c":1},{"c":2}],"x y":"z"},"1":{"2":3},"e":null}`
	for _, v := range []struct{ path, want, error string }{
		{"*", "", ""}, {"a.b[1].c", "2", ""}, {"a.b", "[{'c': 1}, {'c': 2}]", ""}, {"a.x y", "'z'", ""}, {"1.2", "3", ""}, {"e", "None", ""},
		{"a..b[0]", "{'c': 1}", ""}, {"a.b[2]", "", "[2] is out of range: the length of the array is 2"}, {"a.b.c", "", `"c" needs an object, got an array`},
		{"a[0]", "", "[0] needs an array, got an object"}, {"a.b[-1]", "", `"-1" needs an object, got an array`}, {"z", "", `"z" is not there`},
		{"e.f", "", `"f" needs an object, got null`}, {"", "", `invalid path ""`}, {"..", "", `invalid path ".."`},
		{"a.b[99999999999999999999]", "", "[99999999999999999999] is out of range: the length of the array is 2"},
	} {
		value, err := Parse([]byte(document))
		if err != nil {
			t.Fatal(err)
		}
		got, err := Resolve(value, v.path)
		switch {
		case v.error != "" && (err == nil || err.Error() != v.error):
			t.Errorf("%q: error %v, want %s", v.path, err, v.error)
		case v.error == "" && err != nil:
			t.Errorf("%q: %v", v.path, err)
		case v.want != "" && Repr(got) != v.want:
			t.Errorf("%q: got %s, want %s", v.path, Repr(got), v.want)
		}
	}
}
