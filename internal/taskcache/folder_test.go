package taskcache

import (
	"strings"
	"testing"
)

func TestAddresses(t *testing.T) {
	id := strings.Repeat("ab", 20)
	for text, want := range map[string]Folder{
		"git+https://github.com/o/r.git#" + id + ":tasks/a": {"https://github.com/o/r.git", id, "tasks/a"},
		"git+https://h/r":                        {"https://h/r", "", "."},
		"git+ssh://git@h/o/r.git#v1.0":           {"ssh://git@h/o/r.git", "v1.0", "."},
		"git+git@github.com:o/r.git#main:a/":     {"git@github.com:o/r.git", "main", "a"},
		"git+file:///srv/r.git#:./a//b":          {"file:///srv/r.git", "", "a/b"},
		"git+https://h/--upload-pack=x#main":     {"https://h/--upload-pack=x", "main", "."}, // behind a host it is but a name
		"git+git://h/r#refs/heads/feature/x:a b": {"git://h/r", "refs/heads/feature/x", "a b"},
	} {
		got, err := Parse(text)
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
		if again, err := Parse(got.String()); err != nil || again != got {
			t.Errorf("%s is written as %s, which is %+v, %v", text, got, again, err)
		}
	}
	for text, why := range map[string]string{
		"git+--upload-pack=touch${IFS}x":             "option",
		"git+ext::sh -c touch% x":                    "blanks",
		"git+ext::sh":                                "not over",
		"git+fd::3":                                  "not over",
		"git+file://host/x":                          "file:///",
		"git+/srv/r":                                 "not over",
		"git+../r":                                   "not over",
		"git+ssh://-oProxyCommand=x/r":               "can be no host",
		"git+ssh://-oProxyCommand=x@h/r":             "option of ssh",
		"git+-oProxyCommand=x@h:r":                   "option of git",
		"git+git@-oProxyCommand=x:r":                 "not an address",
		"git+https://u:secret@h/r":                   "credential helper",
		"git+https://token@h/r":                      "credential helper",
		"git+ssh://git:secret@h/r":                   "use a key",
		"git+https:///r":                             "can be no host",
		"git+https://h/r\n":                          "control characters",
		"git+https://h/r#--upload-pack=x":            "no commit",
		"git+https://h/r#a..b":                       "no commit",
		"git+https://h/r#main:../x":                  "not within",
		"git+https://h/r#main:a/../../x":             "not within",
		"git+https://h/r#main:/etc":                  "not within",
		"git+https://h/r#main:.git/hooks":            "not within",
		"git+https://h/r#main:a\x00b":                "not within",
		`git+https://h/r#main:a\..\..\b`:             "not within",
		"git+":                                       "no address",
		"git+https://h/" + strings.Repeat("x", 3000): "2000",
	} {
		if got, err := Parse(text); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%q is %+v, %v; expected an error with %q", text, got, err, why)
		} else if strings.Contains(text, "secret") && strings.Contains(strings.ReplaceAll(err.Error(), text, ""), "secret") {
			t.Errorf("%v: tells the password twice", err)
		}
	}
}
