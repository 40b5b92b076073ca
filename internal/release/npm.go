package main

import (
	_ "embed"
	"encoding/json"

	"github.com/evalrun/evalrun/sdk/typescript"
)

// launcher is the script that npm puts on PATH. It starts the program of this machine's package.
//
//go:embed launcher.js
var launcher []byte

// npmCPU has the names that Node has for architectures.
var npmCPU = map[string]string{"amd64": "x64", "arm64": "arm64"}

func npmName(t target) string { return "evalrun-" + t.os + "-" + npmCPU[t.arch] }

// npmPackage is package.json, with the keys that these packages need.
type npmPackage struct {
	Name                 string            `json:"name"`
	Version              string            `json:"version"`
	Description          string            `json:"description"`
	Homepage             string            `json:"homepage"`
	OS                   []string          `json:"os,omitempty"`
	CPU                  []string          `json:"cpu,omitempty"`
	Bin                  map[string]string `json:"bin,omitempty"`
	Exports              map[string]any    `json:"exports,omitempty"`
	PreferUnplugged      bool              `json:"preferUnplugged,omitempty"`
	Engines              map[string]string `json:"engines,omitempty"`
	OptionalDependencies map[string]string `json:"optionalDependencies,omitempty"`
}

// npmProgram is the package with the program for one system. npm installs it only there.
func (r *release) npmProgram(t target, program []byte, share []file) ([]byte, error) {
	return r.npm(npmPackage{Name: npmName(t), OS: []string{t.os}, CPU: []string{npmCPU[t.arch]}, PreferUnplugged: true},
		append([]file{{"package/bin/evalrun", 0o755, program}}, inside(share, "package/bin")...)...)
}

// npmLauncher is the package that people install. It depends on the packages of all systems, of which
// npm takes the one that fits. No script runs when it is installed. It has the module of sdk/typescript, too.
func (r *release) npmLauncher(targets []target) ([]byte, error) {
	p := npmPackage{Name: "evalrun", Bin: map[string]string{"evalrun": "launcher.js"}, Engines: map[string]string{"node": ">=18"},
		OptionalDependencies: map[string]string{},
		Exports:              map[string]any{".": map[string]string{"types": "./evalrun.d.mts", "default": "./evalrun.mjs"}}}
	for _, t := range targets {
		p.OptionalDependencies[npmName(t)] = r.semver()
	}
	files := []file{{"package/launcher.js", 0o755, launcher}}
	for _, name := range []string{"evalrun.mjs", "evalrun.d.mts"} {
		data, err := typescript.Files.ReadFile(name)
		if err != nil {
			return nil, err
		}
		files = append(files, file{"package/" + name, 0o644, data})
	}
	return r.npm(p, files...)
}

func (r *release) npm(p npmPackage, files ...file) ([]byte, error) {
	p.Version, p.Description, p.Homepage = r.semver(), summary, homepage
	data, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return nil, err
	}
	return tarGzip(append([]file{{"package/package.json", 0o644, append(data, '\n')}}, files...), r.date)
}
