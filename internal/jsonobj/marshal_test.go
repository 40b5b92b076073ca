package jsonobj

import (
	"encoding/json"
	"testing"
)

func TestMarshalLeavesWhatIsHTMLAsItIs(t *testing.T) {
	got, err := Marshal(map[string]any{"a": "<b> & </b>", "c": []any{1, json.Number("1.50")}})
	if want := `{"a":"<b> & </b>","c":[1,1.50]}`; err != nil || string(got) != want {
		t.Errorf("%s, %v, want %s", got, err, want)
	}
	if got, err := Marshal(func() {}); err == nil {
		t.Errorf("a function is %s", got)
	}
}
