package redact

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/internal/testenv"
)

// randomSecret is one of the kinds that people have: a token, a PEM key, a service account, a
// password with anything in it.
func randomSecret(rnd *rand.Rand) string {
	letters := func(alphabet string, n int) string {
		runes, out := []rune(alphabet), make([]rune, n)
		for i := range out {
			out[i] = runes[rnd.IntN(len(runes))]
		}
		return string(out)
	}
	const base64s = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	switch rnd.IntN(5) {
	case 0:
		return "tok-" + letters(base64s, 8+rnd.IntN(40))
	case 1:
		return "-----BEGIN PRIVATE KEY-----\n" + letters(base64s, 64) + "\n" + letters(base64s, 20) + "==\n-----END PRIVATE KEY-----"
	case 2:
		key, _ := json.Marshal(map[string]string{"type": "service_account", "private_key": "-----BEGIN\n" + letters(base64s, 40) + "\n", "client": letters(base64s, 9)})
		return string(key)
	case 3:
		return letters(`"\\/&<>'=+ %{}:;abc012`, 10+rnd.IntN(30)) + "end"
	}
	return "ü" + letters("äöüéß日本語🔑🎉 ab\\\"/", 8+rnd.IntN(20)) + "z"
}

// gson escapes as Java's Gson does, and writes any character it likes as an escape.
func gson(s string) string {
	return strings.NewReplacer("<", `\u003c`, ">", `\u003e`, "&", `\u0026`, "=", `\u003d`, "'", `\u0027`, "z", `\u007A`).Replace(jsonEscaped(s, false))
}

var escapers = append([]func(string) string{
	gson, url.QueryEscape, url.PathEscape, component,
	func(s string) string { return lowerHex(url.QueryEscape(s)) },
}, jsonWriters...)

var base64s = []*base64.Encoding{base64.StdEncoding, base64.URLEncoding, base64.RawStdEncoding, base64.RawURLEncoding}

// encodings are ways to encode a text three times at most: escapes in any order, and base64 of the
// text, of one escape, of one writer's JSON in JSON, or of base64.
func encodings(rnd *rand.Rand) func(string) string {
	var steps []func(string) string
	escaper := func() func(string) string { return escapers[rnd.IntN(len(escapers))] }
	in64 := func(s string) string {
		before, after := "u:"[:rnd.IntN(3)], "!"[:rnd.IntN(2)]
		return base64s[rnd.IntN(len(base64s))].EncodeToString([]byte(before + s + after))
	}
	switch rnd.IntN(3) {
	case 0:
		inner := rnd.IntN(2)
		writer := jsonWriters[rnd.IntN(len(jsonWriters))]
		switch rnd.IntN(4) {
		case 1:
			steps = append(steps, writer)
		case 2:
			steps = append(steps, writer, writer)
		case 3:
			steps = append(steps, func(s string) string { return base64s[inner].EncodeToString([]byte(s)) })
		}
		steps = append(steps, in64)
	}
	for len(steps) < 3 && rnd.IntN(4) > 0 {
		steps = append(steps, escaper())
	}
	return func(s string) string {
		for _, step := range steps {
			s = step(s)
		}
		return s
	}
}

// Whatever a secret is, who has escaped it how often, and wherever the stream is cut, nothing
// of it is left.
func TestSecretsAreFoundHoweverTheyAreEncoded(t *testing.T) {
	testenv.NeedSlow(t)
	rnd := rand.New(rand.NewPCG(5, 6))
	n := 1000
	if os.Getenv(testenv.Long) == "" {
		n = 200 // CI's stage long has them all
	}
	for range n {
		secret := randomSecret(rnd)
		r := New(map[string]string{"S": secret, "OTHER": "another-" + randomSecret(rnd)})
		encoded := encodings(rnd)(secret)
		before, after := `{"text": "see `, ` there"}`
		text := before + encoded + after
		want := r.String(text)
		if !strings.Contains(want, "[redacted:S]") || leftOf(encoded, want) {
			t.Fatalf("%q, encoded as\n%q, became\n%q", secret, encoded, want)
		}
		if !strings.HasPrefix(want, before) || !strings.HasSuffix(want, after) {
			t.Fatalf("%q, encoded as\n%q, took its neighbours with it:\n%q", secret, encoded, want)
		}
		if got := inPieces(r, text, func(left int) int { return 1 + rnd.IntN(left) }); got != want {
			t.Fatalf("%q became\n%q in one piece and\n%q in several", text, want, got)
		}
		if got := inPieces(r, text, func(int) int { return 1 }); got != want {
			t.Fatalf("%q became\n%q in one piece and\n%q byte by byte", text, want, got)
		}
		quoted, _ := json.Marshal(text)
		if got := r.JSON(quoted); !json.Valid(got) || !strings.Contains(string(got), "[redacted:S]") || leftOf(encoded, string(got)) {
			t.Fatalf("%q became %s", quoted, got)
		}
	}
}

// R22: JSON in JSON in JSON and so on: whoever wrote each level, however many there are, and also
// where the whole has become a part of a URL.
func TestSecretsAreFoundAtAnyDepthOfJSON(t *testing.T) {
	testenv.NeedSlow(t)
	rnd := rand.New(rand.NewPCG(7, 8))
	for depth := 4; depth <= 12; depth++ {
		for range 6 {
			secret := randomSecret(rnd)
			r := New(map[string]string{"S": secret, "OTHER": "another-" + randomSecret(rnd)})
			text := `{"password": ` + `"` + jsonEscaped(secret, false) + `"}`
			for range depth - 1 {
				text = `{"said": "` + jsonWriters[rnd.IntN(len(jsonWriters))](text) + `", "n": 1}`
			}
			inner := text
			if rnd.IntN(3) == 0 {
				text = "https://127.0.0.1/?q=" + url.QueryEscape(text)
			}
			want := r.String(text)
			if !strings.Contains(want, "[redacted:S]") || leftOf(jsonEscaped(secret, false), withoutEscapes(want)) {
				t.Fatalf("%q at depth %d in\n%q became\n%q", secret, depth, text, want)
			}
			if text == inner && !json.Valid([]byte(want)) {
				t.Fatalf("%q at depth %d in\n%s is not JSON any more:\n%s", secret, depth, text, want)
			}
			if got := inPieces(r, text, func(left int) int { return 1 + rnd.IntN(min(left, 99)) }); got != want {
				t.Fatalf("%q became\n%q in one piece and\n%q in several", text, want, got)
			}
			if got := r.JSON([]byte(inner)); !json.Valid(got) || !strings.Contains(string(got), "[redacted:S]") {
				t.Fatalf("%q at depth %d in\n%s became\n%s", secret, depth, inner, got)
			}
		}
	}
}

// R22: what stands beside a secret stays, also a backslash that belongs to it.
func TestDepthTakesNoNeighbours(t *testing.T) {
	key := "first \"line\"\nsecond"
	r := New(map[string]string{"KEY": key, "PATHLIKE": `C:\new\table\`, "SHORT": `\u0061\u0062`})
	deep := func(s string) string {
		for range 6 {
			s = jsonEscaped(s, false)
		}
		return s
	}
	for _, c := range []struct{ text, want string }{
		{deep("a\n") + deep(key) + deep("\tb"), deep("a\n") + "[redacted:KEY]" + deep("\tb")},
		{deep(`C:\new\table\`) + `"`, "[redacted:PATHLIKE]" + deep(`\`) + `"`},
		{deep("first line\nsecond"), deep("first line\nsecond")},
		{"ab " + deep("ab"), "ab " + deep("ab")},
	} {
		if got := r.String(c.text); got != c.want {
			t.Errorf("%s became\n%s, want\n%s", c.text, got, c.want)
		}
	}
}

// leftOf reports whether more is left of an encoded secret than what its first and last groups of
// base64 share with their neighbours.
func leftOf(encoded, text string) bool {
	const most = 16
	for i := 0; i+most <= len(encoded); i++ {
		part := encoded[i : i+most]
		if strings.Contains(text, part) && !strings.Contains(part, `u003`) { // padding
			return true
		}
	}
	return false
}

// Redaction takes time in proportion to the text, however much of it looks like an escape or the
// beginning of a secret.
func BenchmarkEncoded(b *testing.B) {
	key := "-----BEGIN PRIVATE KEY-----\n" + strings.Repeat(strings.Repeat("MIIEvQIBADAN", 5)+"\n", 25) + "-----END PRIVATE KEY-----"
	r := New(map[string]string{"KEY": key, "PERCENT": strings.Repeat("%25", 30), "SLASHES": strings.Repeat(`\`, 60)})
	quoted := func(s string) string { q, _ := json.Marshal(s); return string(q) }
	line := quoted(`{"level":"info","msg":"say \"hello\"","path":"C:\\temp\\new"}`)
	for _, size := range []int{1, 8} {
		for name, text := range map[string]string{
			"JSON in JSON": strings.Repeat(quoted(line)+"\n", 300*size), "keys": strings.Repeat(quoted(quoted(key)), 20*size),
			"almost a key": strings.Repeat(key[:len(key)-2], 20*size), "percent": strings.Repeat("%25", 10000*size), "slashes": strings.Repeat(`\`, 30000*size),
		} {
			b.Run(fmt.Sprintf("%s x%d", name, size), func(b *testing.B) {
				w := r.Writer(io.Discard)
				b.SetBytes(int64(len(text)))
				for b.Loop() {
					_, _ = io.WriteString(w, text)
				}
			})
		}
	}
}
