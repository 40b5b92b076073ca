// Command sbom prints the content of a Go program as a software bill of materials (CycloneDX 1.6,
// JSON). It reads everything from the build information that the Go tool puts into the program, so
// that the bill describes the program and not a checkout. It knows nothing of evalrun.
//
//	go run ./internal/sbom -version v1.2.3 PROGRAM
package main

import (
	"cmp"
	"debug/buildinfo"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"
)

func main() {
	version := flag.String("version", "", "the version of the program; otherwise the one in its build information")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: sbom [-version VERSION] PROGRAM")
		os.Exit(2)
	}
	info, err := buildinfo.ReadFile(flag.Arg(0))
	if err == nil {
		err = write(os.Stdout, info, *version)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

// component is a program or a module. The names are those of CycloneDX.
type component struct {
	Type    string `json:"type"`
	Ref     string `json:"bom-ref"`
	Name    string `json:"name"`
	Version string `json:"version"`
	PURL    string `json:"purl"`
}

type document struct {
	Format      string `json:"bomFormat"`
	SpecVersion string `json:"specVersion"`
	Version     int    `json:"version"`
	Metadata    struct {
		Component component `json:"component"`
	} `json:"metadata"`
	Components []component `json:"components"`
}

// write prints the bill. It has no time and no serial number, so that the same program gives the
// same bill.
func write(w io.Writer, info *debug.BuildInfo, version string) error {
	d := document{Format: "CycloneDX", SpecVersion: "1.6", Version: 1}
	d.Metadata.Component = module("application", info.Main.Path, cmp.Or(version, info.Main.Version))
	d.Components = []component{module("library", "std", strings.TrimPrefix(info.GoVersion, "go"))}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		d.Components = append(d.Components, module("library", m.Path, m.Version))
	}
	out := json.NewEncoder(w)
	out.SetIndent("", "  ")
	out.SetEscapeHTML(false)
	return out.Encode(d)
}

func module(kind, path, version string) component {
	// A "+" has a meaning of its own in a package URL.
	purl := "pkg:golang/" + path + "@" + strings.ReplaceAll(version, "+", "%2B")
	return component{Type: kind, Ref: purl, Name: path, Version: version, PURL: purl}
}
