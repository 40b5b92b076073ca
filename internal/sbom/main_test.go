package main

import (
	"bytes"
	"encoding/json"
	"os"
	"runtime/debug"
	"slices"
	"testing"

	"debug/buildinfo"
)

// Given a program, when its bill is written, then it names the program, Go's library and each module
// once, the replaced one by what replaces it.
func TestBill(t *testing.T) {
	info := &debug.BuildInfo{GoVersion: "go1.26.8", Main: debug.Module{Path: "example.com/p", Version: "(devel)"}, Deps: []*debug.Module{
		{Path: "example.com/a", Version: "v1.0.0+incompatible"},
		{Path: "example.com/b", Version: "v1.0.0", Replace: &debug.Module{Path: "example.com/c", Version: "v2.0.0"}},
	}}
	var got document
	decode(t, info, "v3", &got)
	if c := got.Metadata.Component; c.Type != "application" || c.PURL != "pkg:golang/example.com/p@v3" {
		t.Errorf("the program is %+v", c)
	}
	var purls []string
	for _, c := range got.Components {
		purls = append(purls, c.PURL)
	}
	want := []string{"pkg:golang/std@1.26.8", "pkg:golang/example.com/a@v1.0.0%2Bincompatible", "pkg:golang/example.com/c@v2.0.0"}
	if !slices.Equal(purls, want) {
		t.Errorf("got %q, want %q", purls, want)
	}
}

// Given this test's own program, when its build information is read from the file, then there is a bill of it.
func TestBillOfAFile(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	info, err := buildinfo.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	var got document
	decode(t, info, "", &got)
	if got.Format != "CycloneDX" || got.Metadata.Component.Name != "github.com/evalrun/evalrun" {
		t.Errorf("got %+v", got)
	}
}

func decode(t *testing.T, info *debug.BuildInfo, version string, into *document) {
	t.Helper()
	var b bytes.Buffer
	if err := write(&b, info, version); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b.Bytes(), into); err != nil {
		t.Fatal(err)
	}
}
