package redact

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/url"
	"strings"
	"testing"
)

const secret = `p/ss+w"rd<é>&1`

func TestEverySpellingOfASecretIsReplaced(t *testing.T) {
	r := New(map[string]string{"API_KEY": secret})
	quoted := func(s string) string { b, _ := json.Marshal(s); return string(b) }
	var plain bytes.Buffer
	enc := json.NewEncoder(&plain)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(secret)
	for name, text := range map[string]string{
		"raw":               secret,
		"JSON":              quoted(secret),
		"JSON without HTML": plain.String(),
		"JSON of Python":    `"p/ss+w\"rd<\u00e9>&1"`,
		"JSON in JSON":      quoted(quoted("abc " + secret)),
		"URL query":         "https://example.com/?q=" + url.QueryEscape(secret),
		"URL path":          "https://example.com/" + url.PathEscape(secret),
		"URL, lower hex":    strings.ToLower(url.QueryEscape(secret)),
		"base64":            base64.StdEncoding.EncodeToString([]byte(secret)),
		"base64 of a URL":   base64.URLEncoding.EncodeToString([]byte(secret)),
		"basic auth":        base64.StdEncoding.EncodeToString([]byte("me:" + secret)),
		"base64, second":    base64.StdEncoding.EncodeToString([]byte("x" + secret + "yz")),
		"base64, third":     base64.StdEncoding.EncodeToString([]byte("xy" + secret + "yz")),
	} {
		t.Run(name, func(t *testing.T) {
			text = "before " + text + " after"
			got := r.String(text)
			if name == "JSON in JSON" {
				got = string(r.JSON(json.RawMessage(quoted(quoted(secret)))))
			}
			if !strings.Contains(got, "[redacted:API_KEY]") || strings.Contains(got, "ss+w") || strings.Contains(got, "1after") {
				t.Errorf("%q became %q", text, got)
			}
			if kept := len(got) - len("[redacted:API_KEY]"); kept > len(text)-len(secret)/2 {
				t.Errorf("%q became %q, of which too much is kept", text, got)
			}
		})
	}
}

func TestWhatIsTooShortIsLeft(t *testing.T) {
	if r := New(map[string]string{"A": "1234567", "B": "  short  ", "C": ""}); r != nil {
		t.Error("expected no redactor")
	}
	if got := New(map[string]string{"A": "12345678"}).String("x12345678x"); got != "x[redacted:A]x" {
		t.Errorf("got %s", got)
	}
}

func TestTheLongestOfSeveralSecretsGivesTheName(t *testing.T) {
	for _, c := range []struct {
		values     map[string]string
		text, want string
	}{
		{map[string]string{"SHORT": "abcdefgh", "LONG": "abcdefghijkl"}, "abcdefghijkl abcdefghij", "[redacted:LONG] [redacted:SHORT]ij"},
		{map[string]string{"INNER": "cdefghij", "OUTER": "abcdefghijkl"}, "abcdefghijkl abcdefghijk", "[redacted:OUTER] ab[redacted:INNER]k"},
		{map[string]string{"LEFT": "abcdefgh", "RIGHT": "efghijklmn"}, "xabcdefghijklmnx", "x[redacted:RIGHT]x"},
		{map[string]string{"A": "same-value", "B": "same-value"}, "same-value", "[redacted:A]"},
		{map[string]string{"A": "abababab"}, "abababababab|", "[redacted:A]|"},
		{map[string]string{"A": "aaaaaaaa"}, strings.Repeat("a", 1000) + "b" + strings.Repeat("a", 7), "[redacted:A]baaaaaaa"},
		{map[string]string{"A": "token-1234\n"}, "token-1234;", "[redacted:A];"},
		{map[string]string{`we"ird]name`: "token-1234"}, "token-1234", "[redacted:we_ird_name]"},
		{map[string]string{"A": "abcdefgh", "B": "ijklmnop"}, "abcdefghijklmnop", "[redacted:A][redacted:B]"},
	} {
		if got := New(c.values).String(c.text); got != c.want {
			t.Errorf("%v: %s became %s, want %s", c.values, c.text, got, c.want)
		}
	}
}

func TestNilPassesEverything(t *testing.T) {
	var r *Redactor
	var b bytes.Buffer
	w := r.Writer(&b)
	_, _ = io.WriteString(w, "secret-value")
	if err := w.Close(); err != nil || b.String() != "secret-value" {
		t.Errorf("got %q, %v", &b, err)
	}
	text := []byte("secret-value")
	if got := r.Bytes(text); &got[0] != &text[0] {
		t.Error("Bytes made a copy")
	}
	if got := r.JSON(json.RawMessage(text)); &got[0] != &text[0] {
		t.Error("JSON made a copy")
	}
	if r.String("secret-value") != "secret-value" {
		t.Error("String changed it")
	}
}

// The stream may be cut anywhere, and the result is the same.
func TestCutsDoNotMatter(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		// Few letters make many overlaps.
		letters := "ab"
		if rnd.IntN(2) == 0 {
			letters = "abcd/+"
		}
		word := func(n int) string {
			b := make([]byte, n)
			for i := range b {
				b[i] = letters[rnd.IntN(len(letters))]
			}
			return string(b)
		}
		values := map[string]string{}
		for i := range 1 + rnd.IntN(5) {
			values[fmt.Sprint("S", i)] = word(8 + rnd.IntN(6))
		}
		text := word(rnd.IntN(40))
		for _, v := range values {
			text += v[:rnd.IntN(len(v))] + v + word(rnd.IntN(8))
		}
		r := New(values)
		want := r.String(text)
		for name, v := range values {
			if strings.Contains(want, v) {
				t.Fatalf("%s=%s is left in %s, made of %s", name, v, want, text)
			}
		}
		if got := inPieces(r, text, func(left int) int { return 1 + rnd.IntN(left) }); got != want {
			t.Fatalf("%v: %s became %s in one piece and %s in several", values, text, want, got)
		}
		if got := inPieces(r, text, func(int) int { return 1 }); got != want {
			t.Fatalf("%v: %s became %s in one piece and %s byte by byte", values, text, want, got)
		}
	}
}

func inPieces(r *Redactor, text string, next func(left int) int) string {
	var b bytes.Buffer
	w := r.Writer(&b)
	for len(text) > 0 {
		n := next(len(text))
		_, _ = io.WriteString(w, text[:n])
		text = text[n:]
	}
	_ = w.Close()
	return b.String()
}

func FuzzWriter(f *testing.F) {
	f.Add("abababab", "babababa", "xabababababax", uint(3))
	f.Add(secret, "token-12345", "token-token-12345 "+secret, uint(1))
	f.Fuzz(func(t *testing.T, one, two, text string, cut uint) {
		r := New(map[string]string{"ONE": one, "TWO": two})
		want := r.String(text)
		if got := inPieces(r, text, func(left int) int { return 1 + int(cut%uint(left)) }); got != want {
			t.Errorf("%q in one piece, %q in several", want, got)
		}
		if r == nil {
			return
		}
		for _, v := range []string{strings.TrimSpace(one), strings.TrimSpace(two)} {
			// What stands on both sides of a marker may make up a secret by chance only if the
			// marker is a part of it.
			if len([]rune(v)) >= minLength && !strings.ContainsAny(v, "[]:") && !strings.Contains("redacted:ONETWO", v) && strings.Contains(want, v) {
				t.Errorf("%q is left in %q", v, want)
			}
		}
		quoted, _ := json.Marshal(text)
		if !json.Valid(r.JSON(quoted)) {
			t.Errorf("%s became invalid", quoted)
		}
	})
}

func TestOnlyWhatMayBeASecretIsHeldBack(t *testing.T) {
	var b bytes.Buffer
	w := New(map[string]string{"A": "SECRET-VALUE"}).Writer(&b)
	for _, step := range []struct{ write, want string }{
		{"hello\n", "hello\n"},
		{"see SEC", "hello\nsee "},
		{"OND\n", "hello\nsee SECOND\n"},
		{"SECRET-", "hello\nsee SECOND\n"},
		{"VALUE!", "hello\nsee SECOND\n[redacted:A]!"},
	} {
		_, _ = io.WriteString(w, step.write)
		if b.String() != step.want {
			t.Errorf("after %q got %q, want %q", step.write, &b, step.want)
		}
	}
}

type failingWriter struct{ err error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.err }

func TestTheErrorOfTheWriterIsReturned(t *testing.T) {
	full := errors.New("no space left")
	w := New(map[string]string{"A": "SECRET-VALUE"}).Writer(failingWriter{full})
	if _, err := w.Write([]byte("x SECRET")); !errors.Is(err, full) {
		t.Errorf("got %v", err)
	}
	if err := w.Close(); !errors.Is(err, full) {
		t.Errorf("Close: got %v", err)
	}
}

func BenchmarkPassThrough(b *testing.B) {
	values := map[string]string{}
	rnd := rand.New(rand.NewPCG(3, 4))
	for i := range 20 {
		raw := make([]byte, 30)
		for j := range raw {
			raw[j] = byte(rnd.Uint32())
		}
		values[fmt.Sprint("TOKEN", i)] = base64.StdEncoding.EncodeToString(raw)
	}
	text := []byte(strings.Repeat("time=2026-01-02T03:04:05Z level=INFO msg=\"a line of an ordinary log\" rollout=0190\n", 100))
	for name, r := range map[string]*Redactor{"nil": nil, "20 secrets": New(values)} {
		b.Run(name, func(b *testing.B) {
			w := r.Writer(io.Discard)
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				_, _ = w.Write(text)
			}
		})
	}
}
