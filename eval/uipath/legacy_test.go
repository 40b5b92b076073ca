package uipath_test

import (
	"math"
	"testing"

	"github.com/evalrun/evalrun/eval/evaltest"
)

// The vectors of the legacy scale are all of UiPath's own.
func TestLegacyJSONSimilarityVectors(t *testing.T) {
	for _, v := range []struct {
		expected, actual string
		want, tolerance  float64
	}{
		{`{"user":{"name":"Alice","age":30,"address":{"city":"New York","zip":"10001"}},"active":true}`,
			`{"user":{"name":"Alicia","age":28,"address":{"city":"New York","zip":"10002"}},"active":false,"extra":"x"}`, 68, 1e-9},
		{`{"users":[{"name":"Alice","age":25},{"name":"Bob","age":30}]}`,
			`{"users":[{"name":"Alice","age":24},{"name":"Robert","age":30}],"extra":"x"}`, 82.333, 1e-3},
		{`{"name":"Alice","age":30,"active":true}`, `{"name":"Alice","age":"30","active":"true"}`, 33.333, 1e-3},
		{`{"user":{"name":"Alice Johnson","age":30,"active":true,"address":{"street":"123 Main St","city":"Metropolis","zip":90210}},
		  "preferences":{"newsletter":true,"languages":["en","fr","es"]},"metrics":{"visits":100,"ratio":0,"growth":1.0},
		  "posts":[{"title":"Hello World","tags":["intro","welcome"]},{"title":"Deep Dive","tags":["advanced","json","parsing"]}],
		  "permissions":{"admin":false,"editor":true,"viewer":true},"notes":null,"bio":"Café au lait","scores":[10,9.5,"N/A",true],
		  "settings":{"features":[{"key":"A","enabled":true},{"key":"B","enabled":false}]}}`,
			`{"user":{"name":"Alice Johnson","age":"30","active":"true","address":{"street":"123 Main St","city":"Metropolis","zip":"90210"}},
		  "preferences":{"newsletter":"yes","languages":["en","es","fr","de"]},"metrics":{"visits":98,"ratio":1e-11,"growth":0.9},
		  "posts":[{"title":"Hello-World","tags":["intro"]},{"title":"Deep  Dive","tags":["advanced","json"]}],
		  "permissions":{"admin":"false","editor":true},"bio":"Cafe au lait","scores":[10,"9.5","NA","true"],
		  "settings":{"features":[{"key":"B","enabled":"false"},{"key":"A","enabled":"true"}]},"extra":{"debug":true}}`, 43.24977043158861, 1e-9},
	} {
		r := evaltest.Only(t, evaltest.Evaluate(t, evaltest.Definition("legacy-json-similarity", `{"targetOutputKey":"*"}`), `{"expectedOutput":`+v.expected+`}`, v.actual))
		if r.Scale != 100 || math.Abs(*r.Score-v.want) > v.tolerance {
			t.Errorf("score %v of %v, want %v of 100", *r.Score, r.Scale, v.want)
		}
	}
}

func TestLegacyEquals(t *testing.T) {
	for _, v := range []struct {
		name, config, expected, actual string
		want                           float64
	}{
		{"equal numbers", `{"targetOutputKey":"*"}`, `{"result":2.0}`, `{"result":2}`, 100},
		{"bool is not a number", `{}`, `{"a":true}`, `{"a":1}`, 0},
		{"text is not a number", `{}`, `{"a":"1"}`, `{"a":1}`, 0},
		{"key order", `{}`, `{"a":1,"b":2}`, `{"b":2,"a":1}`, 100},
		{"with a key", `{"targetOutputKey":"a"}`, `{"a":1,"b":2}`, `{"a":1,"b":3}`, 100},
		{"a key missing on one side passes", `{"targetOutputKey":"a"}`, `{"a":1}`, `{"b":3}`, 100},
	} {
		t.Run(v.name, func(t *testing.T) {
			r := evaltest.Only(t, evaltest.Evaluate(t, evaltest.Definition("legacy-equals", v.config), `{"expectedOutput":`+v.expected+`,"expectedAgentBehavior":""}`, v.actual))
			evaltest.WantScore(t, r, v.want)
			if r.Scale != 100 {
				t.Errorf("scale %v", r.Scale)
			}
		})
	}
}

func TestLegacyCSV(t *testing.T) {
	const config = `{"targetOutputKey":"csv","targetSubOutputKey":"id, Name"}`
	for _, v := range []struct {
		name, config, expected, actual string
		want                           float64
		error                          string
	}{
		{"columns match in any order and case", config, `"id,name,x\n1, Bob ,9"`, `"NAME,ID\nBob,1"`, 100, ""},
		{"values are case-sensitive", config, `"id,name\n1,Bob"`, `"id,name\n1,bob"`, 0, ""},
		{"column missing", config, `"id,name\n1,Bob"`, `"id\n1"`, 0, "the actual CSV: columns missing: Name"},
		{"no data", config, `"id,name\n1,Bob"`, `"id,name"`, 0, "the actual CSV: no data row"},
		{"empty", config, `"id,name\n1,Bob"`, `""`, 0, "the CSV text is empty"},
		{"content of an object", config, `{"content":"id,name\n1,Bob"}`, `{"content":"id,name\n1,Bob"}`, 100, ""},
	} {
		t.Run(v.name, func(t *testing.T) {
			results := evaltest.Evaluate(t, evaltest.Definition("legacy-csv-column-exact-match", v.config), `{"expectedOutput":{"csv":`+v.expected+`}}`, `{"csv":`+v.actual+`}`)
			evaltest.WantScore(t, results[0], v.want)
			if results[0].Error != v.error {
				t.Errorf("error %q, want %q", results[0].Error, v.error)
			}
		})
	}
}

func TestLegacyCSVLineByLine(t *testing.T) {
	def := evaltest.Definition("legacy-csv-column-exact-match", `{"targetOutputKey":"csv","targetSubOutputKey":"id","lineByLineEvaluation":true}`)
	results := evaltest.Evaluate(t, def, `{"expectedOutput":{"csv":"id,n\n1,a\n2,b\n3,c"}}`, `{"csv":"id,n\n1,x\n9,b"}`)
	if len(results) != 4 {
		t.Fatalf("got %d results, want 3 rows and the aggregate", len(results))
	}
	evaltest.WantScore(t, results[0], 100)
	evaltest.WantScore(t, results[1], 0)
	evaltest.WantScore(t, results[2], 0)
	evaltest.WantScore(t, results[3], 100.0/3)
}
