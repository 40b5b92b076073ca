package uipath

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/rangetable"
)

// A generated value is nil, a bool, a string, a json.Number (which keeps how it is written), a list
// or an object in order.
type (
	list   []any
	object []member
	member struct {
		key   string
		value any
	}
)

func (o object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, m := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		key, err := json.Marshal(m.key)
		if err != nil {
			return nil, err
		}
		value, err := json.Marshal(m.value)
		if err != nil {
			return nil, err
		}
		b.Write(append(append(key, ':'), value...))
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

func (o object) get(key string) any {
	for _, m := range o {
		if m.key == key {
			return m.value
		}
	}
	return nil
}

// with sets a member, in place if it is there.
func (o object) with(key string, value any) object {
	out := append(object{}, o...)
	for i := range out {
		if out[i].key == key {
			out[i].value = value
			return out
		}
	}
	return append(out, member{key, value})
}

func text(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// generator makes values.
type generator struct{ *rand.Rand }

func newGenerator(seed uint64) generator {
	return generator{rand.New(rand.NewPCG(seed, 0x756970617468))}
}

func (g generator) chance(p float64) bool { return g.Float64() < p }

func pick[T any](g generator, from ...T) T { return from[g.IntN(len(from))] }

var (
	words = []string{
		"", " ", "a", "A", "abc", "ABC", "Hello", "hello ", "hello\n", "café", "cafe\u0301", "İ", "i\u0307", "ß", "SS", "ẞ", "ǅ", "ﬁ", "Σ", "ς", "σ", "ΑΣ", "ας", "ΑΣ.",
		"K", "日本", "😀", "👩\u200d👩", "1", "1.0", "8", "8.0", "true", "True", "None", "null", "{}", "[]", "{'a': 1}", "it's", `say "x"`, `it's "x"`, `\n`, `\`,
		"\t", "\r\n", "\u00a0", "\u200b", "\u2028", "\x7f", "\u0085", "\u00ad", "\ud7ff", "\ue000", "\ufeff", "Yes", "yes", "no", "NO", "maybe", "Ünknown", "ÜNKNOWN",
		"line1\nline2", "line1\r\nline2", "Line1\n\nline2\n", "a|b|c", "|a||b|", "x\n \ny", "0", "-0", "1e3", "[1, 2]", "x\x1cy", "\u3000",
	}
	numbers = []json.Number{
		"0", "1", "-1", "2", "8", "10", "12", "100", "1.0", "8.0", "0.0", "-0.0", "-0", "0.1", "0.30000000000000004", "1e-13", "1e-12", "1.0000001e-12", "1e-11", "1e16",
		"1e15", "123456789012345680", "9007199254740992", "9007199254740993", "9223372036854775808", "18446744073709551617", "1e22", "1E+22", "1e-5", "0.0001", "0.00001234",
		"1.5e300", "-2.5", "3.14159", "5e-324", "1.7976931348623157e308", "99999999999999990.0", "10000000000000000000000000000000000000000",
	}
	known = rangetable.Assigned("13.0.0") // what every Python since 3.9 knows
)

func (g generator) word() string {
	switch {
	case g.chance(0.7):
		return pick(g, words...)
	case g.chance(0.5):
		return pick(g, words...) + pick(g, words...)
	}
	var b strings.Builder
	for range g.IntN(12) {
		r := rune(g.IntN(0x20000))
		if g.chance(0.7) {
			r = pick(g, []rune("abcXYZ 01é\n'\"\\|,")...)
		}
		if unicode.Is(known, r) && !unicode.Is(unicode.Cs, r) && r != 0 {
			b.WriteRune(r)
		}
	}
	return b.String()
}

func (g generator) number() json.Number {
	switch {
	case g.chance(0.7):
		return pick(g, numbers...)
	case g.chance(0.5):
		return json.Number(strconv.FormatFloat(g.NormFloat64()*100, 'f', g.IntN(7), 64))
	}
	return json.Number(strconv.FormatFloat(g.ExpFloat64(), pick[byte](g, 'e', 'g'), g.IntN(18), 64))
}

func (g generator) value(depth int) any {
	switch n := g.IntN(20); {
	case depth > 3 || n < 10:
		return pick[any](g, g.word(), g.word(), g.number(), g.number(), g.chance(0.5), nil)
	case n < 15:
		items := list{}
		for range g.IntN(4) {
			items = append(items, g.value(depth+1))
		}
		return items
	}
	o := object{}
	for range g.IntN(4) {
		o = o.with(pick(g, "a", "b", "c", "A", "result", "é", "", "x.y", "k[0]"), g.value(depth+1))
	}
	return o
}

// output is what an agent may answer: the paths of the evaluators lead into it more often than not.
func (g generator) output() object {
	o := object{}
	if g.chance(0.9) {
		o = o.with("result", g.value(1))
	}
	if g.chance(0.7) {
		first := object{{"c", g.value(2)}}
		o = o.with("a", pick[any](g, object{{"b", list{first, g.number()}}}, object{{"b", list{first}}}, object{{"b", list{}}}, object{{"b", list{g.value(2)}}},
			object{}, json.Number("3"), list{}, object{{"b", object{{"c", json.Number("1")}}}}, nil))
	}
	if g.chance(0.3) {
		o = o.with(pick(g, "z", "é", "Z", "", "n", "a.b"), g.value(1))
	}
	g.Shuffle(len(o), func(i, j int) { o[i], o[j] = o[j], o[i] })
	return o
}

// changed is a value with small changes, here and there.
func (g generator) changed(v any, p float64) any {
	if !g.chance(p) {
		switch v := v.(type) {
		case list:
			out := list{}
			for _, item := range v {
				out = append(out, g.changed(item, p*0.6))
			}
			return out
		case object:
			out := object{}
			for _, m := range v {
				out = append(out, member{m.key, g.changed(m.value, p*0.6)})
			}
			g.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
			return out
		}
		return v
	}
	switch v := v.(type) {
	case nil:
		return pick[any](g, "None", "null", "", json.Number("0"), false, object{}, list{})
	case bool:
		return pick[any](g, !v, json.Number(map[bool]string{true: "1", false: "0"}[v]), map[bool]string{true: "True", false: "False"}[v], strconv.FormatBool(v), nil)
	case json.Number:
		f, _ := v.Float64()
		return pick[any](g, v.String(), json.Number(strconv.FormatFloat(f, 'g', -1, 64)), json.Number(strconv.FormatFloat(f*0.9, 'g', -1, 64)),
			json.Number(strconv.FormatFloat(f/2+1, 'f', -1, 64)), f != 0, list{v})
	case string:
		return pick(g, strings.ToUpper(v), strings.ToLower(v), v+" ", strings.TrimSpace(v), strings.ReplaceAll(v, "\n", "\r\n"), v+"x", g.word(), strings.ToTitle(v))
	case list:
		shuffled := append(list{}, v...)
		g.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		return pick[any](g, shuffled, shuffled[:len(v)/2], append(shuffled, g.value(3)), literal(g, v, false), object{{"0", v}})
	case object:
		return pick[any](g, v[:len(v)/2], v.with(pick(g, "a", "b", "q"), g.value(3)), text(v), literal(g, v, false))
	}
	return v
}

// literal writes a value as Python source: as repr does, or with all that the syntax allows.
func literal(g generator, v any, odd bool) string {
	items := func(v list, brackets string) string {
		parts := make([]string, len(v))
		for i := range v {
			parts[i] = literal(g, v[i], odd)
		}
		end := ""
		if odd && len(v) > 0 && g.chance(0.3) {
			end = pick(g, ",", " , ", ",\n", ", # end\n")
		}
		return brackets[:1] + strings.Join(parts, pick(g, ", ", ",")) + end + brackets[1:]
	}
	switch v := v.(type) {
	case nil:
		return "None"
	case bool:
		return map[bool]string{true: "True", false: "False"}[v]
	case json.Number:
		return literalNumber(g, v, odd)
	case string:
		return literalString(g, v, odd)
	case list:
		if odd && len(v) > 1 && g.chance(0.2) {
			return items(v, "()")
		}
		return items(v, "[]")
	case object:
		parts := make([]string, len(v))
		for i, m := range v {
			parts[i] = literalString(g, m.key, odd) + ": " + literal(g, m.value, odd)
		}
		if odd && len(v) > 0 && g.chance(0.2) {
			return "{ # a comment, with 'quotes'\n" + strings.Join(parts, ",\n") + ",\n}"
		}
		return "{" + strings.Join(parts, ", ") + "}"
	}
	panic(fmt.Sprintf("%T", v))
}

func literalNumber(g generator, v json.Number, odd bool) string {
	s := v.String()
	if n, err := strconv.ParseInt(s, 10, 64); odd && err == nil && n >= 0 && g.chance(0.5) {
		return pick(g, fmt.Sprintf("0x%X", n), fmt.Sprintf("0O%o", n), fmt.Sprintf("0b%b", n), fmt.Sprintf("0x_%x", n), "+"+strconv.FormatInt(n, 10), "- "+strconv.FormatInt(n, 10),
			strings.ReplaceAll(strconv.FormatInt(n, 10), "00", "0_0"))
	}
	if odd && strings.HasPrefix(s, "0.") && g.chance(0.5) {
		return s[1:]
	}
	return s
}

func literalString(g generator, s string, odd bool) string {
	if odd && g.chance(0.3) && !strings.ContainsAny(s, "\\'\"\n\r\x00") {
		return pick(g, "u", "U", "r", "R", "") + pick(g, "'"+s+"'", `"`+s+`"`, "'''"+s+"'''", `"""`+s+`"""`)
	}
	if r := []rune(s); odd && len(r) > 1 && g.chance(0.2) {
		return literalString(g, string(r[:1]), odd) + pick(g, " ", "") + literalString(g, string(r[1:]), odd)
	}
	var b strings.Builder
	b.WriteByte('\'')
	for _, r := range s {
		switch {
		case r == '\\' || r == '\'':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case odd && r < 0x80 && g.chance(0.1):
			fmt.Fprintf(&b, "\\%03o", r)
		case odd && r < 0x100 && g.chance(0.1):
			fmt.Fprintf(&b, "\\x%02x", r)
		case odd && r < 0x10000 && g.chance(0.1):
			fmt.Fprintf(&b, "\\u%04x", r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('\'')
	return b.String()
}
