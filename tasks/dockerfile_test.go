package tasks

import (
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

// Given a Dockerfile that names an image and copies files, when it is read, then all of it can be
// done.
func TestDockerfile(t *testing.T) {
	d, err := ReadDockerfile(write(t, t.TempDir(), "Dockerfile", "# syntax=docker/dockerfile:1\n"+`
from --platform=linux/amd64 python:3.12-slim AS base
LABEL a="b" \
      c=d
ENV DATA=/data   QUOTED="a b" \
    # a comment in the middle
    SINGLE='c d'
ENV LEGACY some  text
WORKDIR /app
WORKDIR src
COPY --chown=1000:1000 a.py b/*.txt ./
`+"COPY\trun.sh /usr/local/bin/run\r\n"+`
COPY ["with space", "${DATA}/x"]
ADD data $DATA/
COPY c.txt /app/src
EXPOSE 80
CMD ["python3"]
`))
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "unsupported", d.Unsupported, []string(nil))
	equal(t, "image", d.Image, "python:3.12-slim")
	equal(t, "workdir", d.Workdir, "/app/src")
	equal(t, "env", d.Env, []KeyValue{{"DATA", "/data"}, {"QUOTED", "a b"}, {"SINGLE", "c d"}, {"LEGACY", "some  text"}})
	equal(t, "copies", d.Copies, []CopyInstruction{
		{Line: 12, Sources: []string{"a.py", "b/*.txt"}, Destination: "/app/src", Folder: true},
		{Line: 13, Sources: []string{"run.sh"}, Destination: "/usr/local/bin/run"},
		{Line: 15, Sources: []string{"with space"}, Destination: "/data/x"},
		{Line: 16, Sources: []string{"data"}, Destination: "/data", Folder: true},
		{Line: 17, Sources: []string{"c.txt"}, Destination: "/app/src", Folder: true},
	})
}

func TestDockerfileDoesMore(t *testing.T) {
	for document, want := range map[string]string{
		"FROM a\nRUN apt-get update \\\n  && apt-get install -y curl": "line 2: RUN apt-get update && apt-get install -y curl",
		"FROM a\nUSER me":                         "line 2: USER me",
		"FROM a\nENTRYPOINT [\"x\"]":              `line 2: ENTRYPOINT ["x"]`,
		"FROM a\nVOLUME /x":                       "line 2: VOLUME /x",
		"FROM a\nARG V=\"1":                       `line 2: ARG V="1`,
		"FROM a\nARG V=$HOME":                     "line 2: ARG $HOME: only variables that ENV or ARG sets above can be used, without escapes",
		"FROM a AS x\nFROM b":                     "line 2: a second FROM: builds of several stages",
		"FROM":                                    "line 1: FROM without an image",
		"FROM a\nCOPY --from=x /a /b":             "line 2: COPY --from=x /a /b: the flag --from=x",
		"FROM a\nCOPY --chmod=755 a /b":           "line 2: COPY --chmod=755 a /b: the flag --chmod=755",
		"FROM a\nCOPY a":                          "line 2: COPY a: expected a source and a destination",
		"FROM a\nCOPY [\"a\", 1]":                 `line 2: COPY ["a", 1]`,
		"FROM a\nCOPY a b":                        "line 2: COPY a b: the destination is relative to the base image's working directory, which is not known",
		"FROM a\nCOPY a $HOME/b":                  "line 2: COPY $HOME/b: only variables that ENV or ARG sets above can be used, without escapes",
		"FROM a\nCOPY a ${X:-b}":                  "line 2: COPY ${X:-b}: only variables that ENV or ARG sets above can be used, without escapes",
		"FROM a\nENV LIBS=/x:$LIBS":               "line 2: ENV /x:$LIBS: only variables that ENV or ARG sets above can be used, without escapes",
		"FROM a\nENV A=\"b":                       `line 2: ENV A="b: a quote is not closed`,
		"FROM a\nENV A=1 B":                       "line 2: ENV A=1 B",
		"FROM a\nADD http://x/a /b":               "line 2: ADD http://x/a /b: downloads and archives",
		"FROM a\nADD a.tar.gz /b":                 "line 2: ADD a.tar.gz /b: downloads and archives",
		"FROM a\nCOPY <<EOF /a\nRUN x\nEOF\n":     "line 2: COPY with a here-document",
		"FROM a\nRUN <<-'E'\n\tUSER x\n\tE\n":     "line 2: RUN with a here-document",
		"# escape=`\nFROM a":                      "line 1: the directive escape",
		"FROM a\nONBUILD RUN x":                   "line 2: ONBUILD RUN x",
		"FROM a\nnonsense":                        "line 2: NONSENSE",
		"FROM a\nRUN " + strings.Repeat("x", 199): "line 2: RUN " + strings.Repeat("x", 146) + "…",
	} {
		equal(t, document, parseDockerfile(document).Unsupported, []string{want})
	}
	// ENV of one instruction sees what was there before it.
	equal(t, "env", parseDockerfile("ENV A=1\nENV A=2 B=$A").Env, []KeyValue{{"A", "2"}, {"B", "1"}})
}

// What changes nothing where nothing is built is not more than can be done.
func TestDockerfileHarmless(t *testing.T) {
	t.Setenv("PATH", "/bin:/usr/bin")
	d := parseDockerfile(`ARG BASE=debian
FROM ${BASE}:12
ARG VERSION=1.2 EMPTY
ENV KEPT=env
ARG KEPT=arg
ENV PATH="/x/$VERSION:$PATH" EMPTY_TOO=$EMPTY KEPT_TOO=$KEPT
USER root
USER 0:0
ENTRYPOINT []
ENTRYPOINT [""]
SHELL ["/bin/bash", "-c"]
HEALTHCHECK CMD curl localhost
COPY a /data/$VERSION`)
	equal(t, "unsupported", d.Unsupported, []string(nil))
	equal(t, "image", d.Image, "debian:12")
	equal(t, "env", d.Env, []KeyValue{{"KEPT", "env"}, {"PATH", "/x/1.2:/bin:/usr/bin"}, {"EMPTY_TOO", ""}, {"KEPT_TOO", "env"}})
	equal(t, "copies", d.Copies, []CopyInstruction{{Line: 13, Sources: []string{"a"}, Destination: "/data/1.2"}})
}

// FuzzDockerfile: reading never panics, destinations are absolute and clean, and lines are in the file.
func FuzzDockerfile(f *testing.F) {
	for _, document := range []string{"FROM a\nCOPY a /b", "ENV A=\"b\" \\\n C=d\nWORKDIR $A\nCOPY [\"a\", \"b\"]", "RUN <<E\nx\nE\n", "# escape=`\n", "COPY \\", "ADD --link a ../..", "\\\n\\"} {
		f.Add(document)
	}
	f.Fuzz(func(t *testing.T, document string) {
		d := parseDockerfile(document)
		for _, c := range d.Copies {
			if !path.IsAbs(c.Destination) || path.Clean(c.Destination) != c.Destination || len(c.Sources) == 0 || c.Line < 1 || c.Line > strings.Count(document, "\n")+1 {
				t.Fatalf("%+v", c)
			}
		}
		if d.Workdir != "" && path.Clean(d.Workdir) != d.Workdir {
			t.Fatalf("workdir %q", d.Workdir)
		}
	})
}

// copies gives the task's files as "source destination", the source relative to the task.
func copies(t *testing.T, dir string) []string {
	t.Helper()
	task, _ := Load(dir)
	files, err := task.Files()
	if err != nil {
		return []string{err.Error()}
	}
	var out []string
	for _, c := range files {
		rel, err := filepath.Rel(dir, c.Source)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, rel+" "+c.Destination)
	}
	return out
}

func TestFiles(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "task.toml", "")
	equal(t, "without environment", copies(t, dir), []string(nil))

	for _, name := range []string{"a.txt", "b[1].txt", "data/c.txt", ".hidden", ".dockerignore", "docker-compose.yaml"} {
		write(t, dir, "environment/"+name, "x")
	}
	all := []string{"environment/.hidden /app/.hidden", "environment/a.txt /app/a.txt", "environment/b[1].txt /app/b[1].txt", "environment/data /app/data"}
	equal(t, "without Dockerfile", copies(t, dir), all)
	write(t, dir, "task.toml", "[environment]\nworkdir = '/w'")
	equal(t, "workdir of task.toml", copies(t, dir)[1], "environment/a.txt /w/a.txt")

	write(t, dir, "environment/Dockerfile", "FROM a\nWORKDIR /src\nCOPY a.txt /x/y\nCOPY *.txt /x/\nCOPY data ./d\nCOPY ../../a.txt /usr\nCOPY . /all")
	equal(t, "with Dockerfile", copies(t, dir), []string{"environment/a.txt /x/y", "environment/a.txt /x/a.txt", "environment/b[1].txt /x/b[1].txt",
		"environment/data /src/d", "environment/a.txt /usr/a.txt", "environment /all"})
	task, _ := Load(dir)
	equal(t, "workdir", task.Workdir(), "/w")
	write(t, dir, "task.toml", "")
	task, _ = Load(dir)
	equal(t, "workdir of the Dockerfile", task.Workdir(), "/src")
	d, err := task.Dockerfile()
	if err != nil {
		t.Fatal(err)
	}
	equal(t, ".dockerignore", d.Unsupported, []string{".dockerignore: it is not read, so more would be copied than it allows"})

	write(t, dir, "environment/Dockerfile", "FROM a\nCOPY none /x")
	equal(t, "a file that is not there", copies(t, dir), []string{filepath.Join(dir, "environment", "none") + ": cannot be copied: no such file or directory"})
	write(t, dir, "environment/Dockerfile", "FROM a\nCOPY none* /x")
	equal(t, "a glob that matches nothing", copies(t, dir), []string{filepath.Join(dir, "environment", "Dockerfile") + ":2: nothing in environment/ matches none*"})
}

// Given a link that leads out of environment/, when the files are listed, then it is refused.
func TestFilesBehindLinks(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "task.toml", "")
	write(t, dir, "solution/solve.sh", "x")
	write(t, dir, "environment/a", "x")
	if err := os.Symlink("a", filepath.Join(dir, "environment", "inside")); err != nil {
		t.Fatal(err)
	}
	equal(t, "inside", copies(t, dir), []string{"environment/a /app/a", "environment/inside /app/inside"})
	if err := os.Symlink("../solution", filepath.Join(dir, "environment", "outside")); err != nil {
		t.Fatal(err)
	}
	if got := copies(t, dir); len(got) != 1 || !strings.Contains(got[0], "environment/outside: cannot be copied: path escapes") {
		t.Errorf("got %v", got)
	}
}
