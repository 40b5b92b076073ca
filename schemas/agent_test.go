package schemas_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/jsonschema-go/jsonschema"

	"github.com/evalrun/evalrun/internal/agent"
	_ "github.com/evalrun/evalrun/internal/agent/types"
	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/schemas"
)

func agentSchema() (*jsonschema.Schema, error) {
	data, err := schemas.FS.ReadFile("agent.schema.json")
	if err != nil {
		return nil, err
	}
	schema := new(jsonschema.Schema)
	return schema, json.Unmarshal(data, schema)
}

// What the program accepts of an agent the schema accepts, and the other way round: the two have
// the same keys.
func TestAgentHasTheKeysOfTheProgram(t *testing.T) {
	schema, err := agentSchema()
	if err != nil {
		t.Fatal(err)
	}
	for _, of := range agent.Types() {
		if of.Parse == nil {
			continue
		}
		all := agent.Entry{
			Type: of.Name, Extends: "x", Model: &agent.Model{}, Command: []string{"x"}, Cwd: "x",
			Env: map[string]string{"X": ""}, ResumeWhen: "x", Timeout: 1,
		}
		stored, err := json.Marshal(all)
		if err != nil {
			t.Fatal(err)
		}
		var keys map[string]any
		if err := json.Unmarshal(stored, &keys); err != nil {
			t.Fatal(err)
		}
		if of.Settings != nil {
			own := reflect.TypeOf(of.Settings()).Elem()
			for i := range own.NumField() {
				name, _, _ := strings.Cut(own.Field(i).Tag.Get("json"), ",")
				keys[name] = nil
			}
		}
		for key := range schema.Defs[of.Name].Properties {
			if _, ok := keys[key]; !ok {
				keys[key] = nil
			}
		}
		text, err := json.Marshal(keys)
		if err != nil {
			t.Fatal(err)
		}
		n, err := input.Parse("agent.json", text)
		if err != nil {
			t.Fatal(err)
		}
		r := &input.Reader{}
		agent.ParseEntry(r, n)
		for key := range keys {
			_, described := schema.Defs[of.Name].Properties[key]
			if key == "acceptsFaults" && !described { // stored with every entry
				continue
			}
			if unknown := strings.Contains(r.Problems.Error(), key+": unknown key"); unknown == described {
				t.Errorf("%s: %s: the program takes it: %v; the schema has it: %v", of.Name, key, !unknown, described)
			}
		}
	}
	var enum []any
	for _, name := range agent.Names() {
		enum = append(enum, name)
	}
	if diff := cmp.Diff(enum, schema.AnyOf[0].Enum); diff != "" {
		t.Errorf("names of the registry: %s", diff)
	}
}
