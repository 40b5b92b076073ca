package markup

import (
	"bytes"
	"errors"
	"fmt"
	"html/template"
	"io"
	"math/rand/v2"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
	"text/template/parse"
)

// ours and theirs read a template with this package and with html/template.
func ours(text string, methods map[string][]any) *Templates {
	return New(fstest.MapFS{"t": {Data: []byte(text)}}, "t", nil, methods)
}

func theirs(t testing.TB, text string) *template.Template {
	out, err := template.New("t").Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// In every place, whatever is inserted comes out as html/template writes it, byte for byte.
func TestInsertedTextsAreEscapedAsByHTMLTemplate(t *testing.T) {
	t.Parallel()
	values := []string{
		"", "a b", `"'<>&+`, "\x00", "</script>", "</textarea>", "</title><img src=x onerror=alert(1)>", "javascript:alert(1)",
		"JaVaScRiPt:alert(1)", " javascript:alert(1)", "\tjavascript:alert(1)", "java\nscript:alert(1)", "javascript&colon;alert(1)",
		"data:text/html,<script>", "vbscript:x", "http://a/?b=c&d", "HTTPS://a", "mailto:a@b", "//evil.example", "/a:b", "?a:b", "#a:b",
		"a:b", ":", "%", "%zz", "%41", "%4", "a%2", "\u202e", "ä€😀", "\xff\xfe", `" onmouseover="alert(1)`, "'", "`", "{{.}}", "<!--", "-->", "[x](y)!$*,;=@",
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		b := make([]byte, r.IntN(12))
		for i := range b {
			b[i] = byte(r.UintN(256))
		}
		values = append(values, string(b), ":"+string(b), "a"+string(b)+":")
	}
	for c := range 0x200 {
		values = append(values, "x"+string(rune(c))+"y", string(rune(c))+":")
	}
	for _, text := range []string{
		`<p>{{.}}</p>`, `{{.}}`, `<title>{{.}} x</title>`, `<textarea name="a">{{.}}</textarea>`, `<option value="{{.}}">{{.}}</option>`,
		`<a class="b {{.}}" title="{{.}}" data-x="{{.}}">`, `<a href="{{.}}">`, `<a href="{{.}}#x">`, `<a class="y" href="/a/{{.}}/b/{{.}}">`,
		`<a href="/?a={{.}}&amp;b={{.}}">`, `<svg><use href="#i-{{.}}"/></svg>`, `<img alt="" src="{{.}}">`, `<form method="post" action="/x/{{.}}/y?z={{.}}">`,
		`<a {{if .}}class="x"{{end}} href="{{if .}}{{.}}{{else}}/{{end}}">{{with .}}<b>{{.}}</b>{{end}}</a>`,
		`{{define "in"}}<i title="{{.}}">{{.}}</i>{{end}}<p>{{template "in" .}}</p>`, `{{define "in"}}{{.}}{{end}}<p class="a{{template "in" .}}">`,
	} {
		mine, other := ours(text, nil), theirs(t, text)
		for _, v := range values {
			var a, b bytes.Buffer
			if err := errors.Join(mine.Execute(&a, "t", v), other.Execute(&b, v)); err != nil {
				t.Fatal(text, err)
			}
			if a.String() != b.String() {
				t.Errorf("%s with %q: %s, and html/template %s", text, v, &a, &b)
				break
			}
		}
	}
}

type word string

type named struct {
	Name  string
	Below *named
	All   []named
	Any   any
	N     int64
	Word  word
	inner int
}

func (n named) Twice(times int) string { return strings.Repeat(n.Name, 2*times) }
func (n *named) Set() bool             { return n != nil }

// What the language does is what it does in text/template.
func TestTheLanguageIsThatOfTextTemplate(t *testing.T) {
	t.Parallel()
	data := &named{Name: "<n>", Below: &named{Name: "b", N: 3}, All: []named{{Name: "x", N: 1}, {Name: "y"}}, Any: []int{4}, N: -2, Word: "w"}
	methods := map[string][]any{"Twice": {named.Twice}, "Set": {(*named).Set}}
	for _, text := range []string{
		`{{.Name}} {{.Below.Name}} {{.N}} {{.Word}} {{.Below.Below}}|`, `{{range .All}}{{.Name}}{{else}}none{{end}}{{range .Below.All}}{{.}}{{else}}none{{end}}`,
		`{{range $i, $a := .All}}{{if $i}}, {{end}}{{$a.Name}}{{$.Name}}{{end}}`, `{{with .Below}}{{.Name}}{{$.N}}{{else}}no{{end}}{{with .Below.Below}}x{{else}}{{.Name}}{{end}}`,
		`{{$x := .Name}}{{with .Below}}{{$x}}{{$x := .N}}{{$x}}{{end}}{{$x}}`, `{{.Twice 2}} {{(.Twice 1)}} {{.Below.Twice 1}} {{(index .All 1).Twice 1}} {{.Set}} {{range .All}}{{.Set}}{{end}}`,
		`{{if and .Name (not .Below.Below)}}a{{end}}{{if or .Below.Below .N}}b{{end}}{{or .Below.Below .Name}}{{and .N .Word}}`,
		`{{eq .Name "<n>"}} {{ne .N 3}} {{lt .N 0}} {{le .Below.N 3}} {{gt (len .All) 2}} {{eq .Word "w"}}`,
		`{{len .Any}} {{index .Any 0}} {{printf "%d-%s" .N .Word}} {{len .Name}}`, `{{if .Name}}1{{else if .N}}2{{else}}3{{end}}{{if .Below.All}}1{{else if .N}}2{{else}}3{{end}}`,
		"a {{- .Name -}} b {{/* c */}}", `{{define "t2"}}{{$.Name}}{{.Name}}{{end}}{{template "t2" .Below}}{{with .Below}}{{template "t2" $}}{{end}}`,
	} {
		var a, b bytes.Buffer
		if err := errors.Join(ours(text, methods).Execute(&a, "t", data), theirs(t, text).Execute(&b, data)); err != nil {
			t.Error(text, err)
		} else if a.String() != b.String() {
			t.Errorf("%s: %s, and text/template %s", text, &a, &b)
		}
	}
}

// What is not known, or is wrong, is an error and writes nothing.
func TestWrongTemplates(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`x{{.None}}`: "has no None", `{{.inner}}`: "", `{{.Name.Twice}}`: "string has no Twice", `{{eq .Name .N}}`: "are not compared", `{{.Name | len}}`: "hands a value on",
		`{{template "none"}}`: "no template none", `{{index .All 7}}`: "out of range", `{{.Twice "a"}}`: "does not take", `{{.Twice}}`: "too few", `{{lt .Name 1}}`: "does not take",
		`{{range .N}}{{end}}`: "", `{{.Below.Below.Name}}`: "has no Name", `{{with $x := .Name}}{{$x}}{{end}}`: "", `{{break}}`: "", `{{printf "" 1.5}}`: "1.5 is not known", `{{printf "" true}}`: "true is not known",
	} {
		var out bytes.Buffer
		err := func() (err error) {
			defer func() {
				if p := recover(); p != nil {
					err = fmt.Errorf("%v", p)
				}
			}()
			return ours(text, map[string][]any{"Twice": {named.Twice}}).Execute(&out, "t", &named{Name: "n", Below: &named{}, inner: 1})
		}()
		if err == nil || !strings.Contains(err.Error(), want) || out.Len() > 0 {
			t.Errorf("%s: %v %s", text, err, &out)
		}
	}
	for text, want := range map[string]string{
		`<a href={{.}}>`: "neither in text nor", `<{{.}}>`: "neither in text nor", `<a {{.}}="x">`: "neither in text nor", `<a href='{{.}}'>`: "neither in text nor",
		`<p class="a{{if .}}"{{end}}>`: "end in different places", `{{range .}}<p {{end}}`: "end in different places", `<p`: "ends in a tag",
		`<script>var a = {{.}}</script>`: "neither in text nor", `<style>{{.}}</style>`: "neither in text nor", `<a onclick="{{.}}">`: "neither in text nor",
		`<a style="{{.}}">`: "neither in text nor", `<iframe srcdoc="{{.}}">`: "neither in text nor", `<img srcset="{{.}}">`: "neither in text nor", `<!-- {{.}} -->`: "neither in text nor",
	} {
		func() {
			defer func() {
				if got := fmt.Sprint(recover()); !strings.Contains(got, want) {
					t.Errorf("%s: %s", text, got)
				}
			}()
			ours(text, nil)
		}()
	}
}

// An address that the program has made itself may have any scheme, and nothing else.
func TestAnAddressOfTheProgram(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := ours(`<img src="{{.}}" alt="{{.}}">`, nil).Execute(&out, "t", URL(`data:image/png;base64,a+b"><script>`)); err != nil {
		t.Fatal(err)
	}
	want := `<img src="data:image/png;base64,a&#43;b%22%3e%3cscript%3e" alt="data:image/png;base64,a&#43;b&#34;&gt;&lt;script&gt;">`
	if out.String() != want {
		t.Errorf("got %s, expected %s", &out, want)
	}
}

// In the templates of the pages, what is inserted is escaped as html/template would escape it there.
func TestThePagesAreEscapedAsByHTMLTemplate(t *testing.T) {
	t.Parallel()
	files, funcs := os.DirFS("../web/templates"), template.FuncMap{}
	var other *template.Template
	for {
		var err error
		if other, err = template.New("").Funcs(funcs).ParseFS(files, "*.html"); err == nil {
			break
		}
		missing := regexp.MustCompile(`function "(\w+)" not defined`).FindStringSubmatch(err.Error())
		if missing == nil {
			t.Fatal(err)
		}
		funcs[missing[1]] = func(...any) string { return "" }
	}
	mine := New(files, "*.html", funcs, nil)
	for _, page := range other.Templates() {
		if strings.HasSuffix(page.Name(), ".html") {
			_ = other.ExecuteTemplate(io.Discard, page.Name(), nil) // which escapes first, and then finds no page
		}
	}
	compared := 0
	for _, one := range other.Templates() {
		name, _, _ := strings.Cut(one.Name(), "$htmltemplate_")
		if one.Tree == nil || mine.trees[name] == nil {
			continue
		}
		theirs, places := actions(one.Tree.Root), actions(mine.trees[name].Root)
		if len(theirs) != len(places) {
			t.Fatalf("%s: %d and %d", one.Name(), len(places), len(theirs))
		}
		for i, action := range theirs {
			text, got := action.String(), mine.places[places[i]]
			if !strings.Contains(text, "_html_template_") {
				if len(action.Pipe.Decl) == 0 && one.Name() == name && name != "short" {
					t.Errorf("%s: html/template has not escaped %s", one.Name(), text)
				}
				continue
			}
			want := inText
			for _, escaper := range regexp.MustCompile(`_html_template_\w+`).FindAllString(text, -1) {
				switch escaper {
				case "_html_template_urlfilter":
					want = atURL
				case "_html_template_urlnormalizer":
					want = max(want, inPath)
					if strings.Contains(text, "urlfilter") {
						want = atURL
					}
				case "_html_template_urlescaper":
					want = inParams
				case "_html_template_htmlescaper", "_html_template_attrescaper", "_html_template_rcdataescaper":
				default:
					t.Errorf("%s: %s", one.Name(), text)
				}
			}
			if compared++; got != want {
				t.Errorf("%s: %s is at %d, and html/template takes it for %d", one.Name(), places[i], got, want)
			}
		}
	}
	if compared < 300 {
		t.Errorf("compared %d", compared)
	}
}

func actions(node parse.Node) (all []*parse.ActionNode) {
	switch n := node.(type) {
	case *parse.ListNode:
		if n != nil {
			for _, one := range n.Nodes {
				all = append(all, actions(one)...)
			}
		}
	case *parse.ActionNode:
		all = append(all, n)
	case *parse.IfNode:
		return append(actions(n.List), actions(n.ElseList)...)
	case *parse.WithNode:
		return append(actions(n.List), actions(n.ElseList)...)
	case *parse.RangeNode:
		return append(actions(n.List), actions(n.ElseList)...)
	}
	return all
}
