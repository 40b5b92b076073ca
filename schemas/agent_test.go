package schemas_test

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/jsonschema-go/jsonschema"

	"github.com/evalrun/evalrun/internal/agent"
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
	for _, kind := range []struct {
		name string
		of   []reflect.Type
		// not are the keys of other kinds.
		not []string
	}{
		{"function", []reflect.Type{reflect.TypeFor[agent.Entry]()}, nil},
		{"acp", []reflect.Type{reflect.TypeFor[agent.Entry](), reflect.TypeFor[agent.ACP]()}, []string{"stdin", "output", "outputFile"}},
	} {
		schema, err := agentSchema()
		if err != nil {
			t.Fatal(err)
		}
		has := slices.Sorted(maps.Keys(schema.Defs[kind.name].Properties))
		var want []string
		for _, of := range kind.of {
			for i := range of.NumField() {
				name, _, _ := strings.Cut(of.Field(i).Tag.Get("json"), ",")
				if name != "" && !slices.Contains(kind.not, name) {
					want = append(want, name)
				}
			}
		}
		slices.Sort(want)
		if diff := cmp.Diff(want, has); diff != "" {
			t.Errorf("%s: %s", kind.name, diff)
		}
	}
	var enum []any
	for _, name := range agent.Names() {
		enum = append(enum, name)
	}
	schema, err := agentSchema()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(enum, schema.AnyOf[0].Enum); diff != "" {
		t.Errorf("names of the registry: %s", diff)
	}
}
