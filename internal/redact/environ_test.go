package redact

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFromEnviron(t *testing.T) {
	exists := t.TempDir()
	got := FromEnviron([]string{
		"PATH=/usr/bin:/bin", "HOME=" + exists, "LANG=C.UTF-8", "REGION=eu-central-1", "BROKEN", "=C:=C:\\",
		"OPENAI_API_KEY=1", "OPENAI_APIKEY=2", "GITHUB_TOKEN=3", "githubtoken=4", "DB_PASSWORD=5", "PGPASSWD=6", "MY_SECRET_2=7",
		"AWS_CREDENTIALS=8", "HTTP_AUTH=9", "KEYS=10", "EMPTY_TOKEN=", "LAST_TOKEN=old", "LAST_TOKEN=new=er",
		"GIT_AUTHOR_NAME=Ada Lovelace", "KEYBOARD_LAYOUT=de", "DEPLOY_PUBLIC_KEY=ssh-ed25519", "SSH_AUTH_SOCK=" + exists,
		"GOOGLE_APPLICATION_CREDENTIALS=" + exists, "AWS_SECRET_ACCESS_KEY=/not/a/path",
	}, []string{"REGION", "HOME", "ABSENT"})
	want := map[string]string{
		"REGION": "eu-central-1", "OPENAI_API_KEY": "1", "OPENAI_APIKEY": "2", "GITHUB_TOKEN": "3", "githubtoken": "4", "DB_PASSWORD": "5",
		"PGPASSWD": "6", "MY_SECRET_2": "7", "AWS_CREDENTIALS": "8", "HTTP_AUTH": "9", "KEYS": "10", "EMPTY_TOKEN": "", "LAST_TOKEN": "new=er",
		"AWS_SECRET_ACCESS_KEY": "/not/a/path",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestTerminal(t *testing.T) {
	for in, want := range map[string]string{
		"plain text":                               "plain text",
		"two\nlines\tand a tab":                    "two\nlines\tand a tab",
		"\x1b[31mred\x1b[0m":                       "red",
		"\x1b]0;title\x07text":                     "text",
		"\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\": "link",
		"\x1bPq#0;2;0\x1b\\sixel":                  "sixel",
		"\u009b2Jclear":                            "clear",
		"over\rwritten\b\x00\x7f":                  "overwritten",
		"::error file=a::b":                        ": :error file=a::b",
		"a\n  ::set-output name=x::y":              "a\n  : :set-output name=x::y",
		"\x1b[0m::error::x":                        ": :error::x",
		"a::b":                                     "a::b",
		"##[group]x":                               "# #[group]x",
		"x ##vso[task.setvariable]y":               "x # #vso[task.setvariable]y",
		"###[error]":                               "## #[error]",
		"#\x1b[0m#[error]":                         "# #[error]",
		"##teamcity[x]":                            "# #teamcity[x]",
		"## heading":                               "## heading",
		"a\u202eb\u2066c":                          "abc",
		"\xff\x1b":                                 "\uFFFD",
		"unfinished \x1b[3":                        "unfinished ",
		"é ü 日本":                                   "é ü 日本",
	} {
		if got := Terminal(in); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
		if again := Terminal(want); again != want {
			t.Errorf("%q became %q the second time", want, again)
		}
	}
	if got := Line(" a\r\n\tb\n\n::error::c "); got != "a b : :error::c" {
		t.Errorf("Line gave %q", got)
	}
}
