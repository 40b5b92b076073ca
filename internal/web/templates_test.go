package web

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Nothing of these packages makes markup of a text: no template type of html/template, no inline style
// or handler, and in the script nothing that parses a text.
func TestNothingMakesMarkupOfText(t *testing.T) {
	t.Parallel()
	for pattern, forbidden := range map[string]string{
		"*.go":             `template\.(HTML|JS|CSS|URL|Srcset|HTMLAttr|JSStr)\b`,
		"templates/*.html": `(?i)\sstyle=|\son[a-z]+=|<script>|javascript:`,
		"static/*.js":      `innerHTML|outerHTML|insertAdjacentHTML|\beval\b|new Function|document\.write|\.style\b|DOMParser`,
	} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatal(pattern, files, err)
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if file == "images.go" { // W4: the URL of an image, made of a known type and base64
				data = []byte(strings.ReplaceAll(string(data), "template.URL", ""))
			}
			if found := regexp.MustCompile(forbidden).FindString(string(data)); found != "" && !strings.HasSuffix(file, "_test.go") {
				t.Errorf("%s has %q", file, found)
			}
		}
	}
}

func TestScriptAndStyleAreSmall(t *testing.T) {
	t.Parallel()
	size := 0
	for _, one := range assets() {
		size += len(one.data)
	}
	if size > 70_000 {
		t.Errorf("script and style have %d bytes", size)
	}
}
