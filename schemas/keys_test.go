package schemas

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"
)

// What an editor shows and what the reference of the site says of a key is its description.
func TestEveryKeyOfEvalSetsAndAgentsIsDescribed(t *testing.T) {
	for _, name := range []string{"evalset", "agent"} {
		data, err := FS.ReadFile(name + ".schema.json")
		if err != nil {
			t.Fatal(err)
		}
		var schema any
		if err := json.Unmarshal(data, &schema); err != nil {
			t.Fatal(err)
		}
		keys := 0
		describedKeys(t, name+".schema.json", schema, &keys)
		if keys == 0 {
			t.Errorf("%s: no key was found", name)
		}
	}
}

func describedKeys(t *testing.T, place string, schema any, keys *int) {
	switch value := schema.(type) {
	case []any:
		for _, one := range value {
			describedKeys(t, place, one, keys)
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(value)) {
			properties, ok := value[name].(map[string]any)
			if name != "properties" || !ok {
				describedKeys(t, place+"/"+name, value[name], keys)
				continue
			}
			for _, key := range slices.Sorted(maps.Keys(properties)) {
				property, _ := properties[key].(map[string]any)
				*keys++
				if description, _ := property["description"].(string); description == "" {
					t.Errorf("%s: the key %s has no description; say in the schema what it is", place, key)
				}
				describedKeys(t, place+"/"+key, property, keys)
			}
		}
	}
}
