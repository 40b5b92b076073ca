package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// provenance states where the files in dist come from: in-toto's Statement with SLSA's predicate
// (https://slsa.dev/spec/v1.0/provenance). Whoever publishes the files signs it.
func (r *release) provenance() error {
	const name = "evalrun.intoto.json"
	entries, err := os.ReadDir(r.dist) // in the order of their names
	if err != nil {
		return err
	}
	type digest map[string]string
	type resource struct {
		Name   string `json:"name,omitempty"`
		URI    string `json:"uri,omitempty"`
		Digest digest `json:"digest"`
	}
	var subjects []resource
	for _, entry := range entries {
		if entry.Name() == name || entry.Name() == "SHA256SUMS" {
			continue
		}
		data, err := os.ReadFile(filepath.Join(r.dist, entry.Name()))
		if err != nil {
			return err
		}
		subjects = append(subjects, resource{Name: entry.Name(), Digest: digest{"sha256": sum(data)}})
	}
	data, err := json.MarshalIndent(map[string]any{
		"_type":         "https://in-toto.io/Statement/v1",
		"subject":       subjects,
		"predicateType": "https://slsa.dev/provenance/v1",
		"predicate": map[string]any{
			"buildDefinition": map[string]any{
				"buildType":            homepage + "/blob/main/.ci/dist",
				"externalParameters":   map[string]string{"version": r.version},
				"internalParameters":   map[string]string{"go": strings.TrimPrefix(runtime.Version(), "go")},
				"resolvedDependencies": []resource{{URI: "git+" + homepage, Digest: digest{"gitCommit": r.commit}}},
			},
			"runDetails": map[string]any{"builder": map[string]string{"id": homepage + "/blob/main/.ci/dist"}},
		},
	}, "", "  ")
	if err != nil {
		return err
	}
	return r.write(name, append(data, '\n'))
}
