package jsonobj

import "testing"

func TestMarshalLeavesWhatIsHTMLAsItIs(t *testing.T) {
	got, err := Marshal(map[string]any{"a": "<b> & </b>", "c": []int{1}})
	if want := `{"a":"<b> & </b>","c":[1]}`; err != nil || string(got) != want {
		t.Errorf("%s, %v, want %s", got, err, want)
	}
	if got, err := Marshal(func() {}); err == nil {
		t.Errorf("a function is %s", got)
	}
}
