package main

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"path"
	"strings"
)

// wheelTags are the systems on which a wheel can be installed, as the tags of PEP 425 say it. The
// programs are static, so that every C library will do; Go asks for macOS 12.
var wheelTags = map[target][]string{
	{"linux", "amd64"}:  {"manylinux_2_17_x86_64", "manylinux2014_x86_64", "musllinux_1_1_x86_64"},
	{"linux", "arm64"}:  {"manylinux_2_17_aarch64", "manylinux2014_aarch64", "musllinux_1_1_aarch64"},
	{"darwin", "amd64"}: {"macosx_12_0_x86_64"},
	{"darwin", "arm64"}: {"macosx_12_0_arm64"},
}

func (r *release) wheelName(t target) string {
	return "evalrun-" + r.pep440() + "-py3-none-" + strings.Join(wheelTags[t], ".") + ".whl"
}

// wheel is a Python wheel (the binary distribution format of PEP 427) that installs the program as a
// script, and the Python package, if there is one.
func (r *release) wheel(t target, program []byte, share []file) ([]byte, error) {
	if wheelTags[t] == nil {
		return nil, fmt.Errorf("there is no wheel tag for %s", t)
	}
	name := "evalrun-" + r.pep440()
	files := append([]file{{name + ".data/scripts/evalrun", 0o755, program}}, inside(share, name+".data/data/share/evalrun")...)
	if r.python != "" {
		modules, err := shared(r.python)
		if err != nil {
			return nil, err
		}
		for _, f := range modules {
			if !strings.Contains(f.name, "__pycache__") {
				files = append(files, file{path.Join("evalrun", f.name), f.mode, f.data})
			}
		}
		files = append(files, file{name + ".dist-info/entry_points.txt", 0o644,
			[]byte("[pytest11]\nevalrun = evalrun.pytest_plugin\n")})
	}
	tags := ""
	for _, tag := range wheelTags[t] {
		tags += "Tag: py3-none-" + tag + "\n"
	}
	files = append(files,
		file{name + ".dist-info/METADATA", 0o644, []byte("Metadata-Version: 2.1\nName: evalrun\nVersion: " + r.pep440() +
			"\nSummary: " + summary + "\nHome-page: " + homepage + "\nRequires-Python: >=3.9\n")},
		file{name + ".dist-info/WHEEL", 0o644, []byte("Wheel-Version: 1.0\nGenerator: evalrun\nRoot-Is-Purelib: false\n" + tags)})
	record := ""
	for _, f := range files {
		s := sha256.Sum256(f.data)
		record += fmt.Sprintf("%s,sha256=%s,%d\n", f.name, base64.RawURLEncoding.EncodeToString(s[:]), len(f.data))
	}
	record += name + ".dist-info/RECORD,,\n"
	files = append(files, file{name + ".dist-info/RECORD", 0o644, []byte(record)})

	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, f := range files {
		h := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: r.date.UTC()}
		h.SetMode(f.mode)
		w, err := z.CreateHeader(h)
		if err == nil {
			_, err = w.Write(f.data)
		}
		if err != nil {
			return nil, errors.Join(err, z.Close())
		}
	}
	err := z.Close()
	return b.Bytes(), err
}
