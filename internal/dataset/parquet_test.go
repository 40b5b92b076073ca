package dataset

import (
	"bytes"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/testenv"
)

// ticket has columns of every kind that is understood.
type ticket struct {
	ID       int64             `parquet:"id"`
	Subject  string            `parquet:"subject"`
	Customer *string           `parquet:"customer,optional"`
	Tags     []string          `parquet:"tags,list"`
	Numbers  []int32           `parquet:"numbers"`
	Share    float64           `parquet:"share"`
	Small    float32           `parquet:"small"`
	Open     bool              `parquet:"open"`
	Asked    time.Time         `parquet:"asked,timestamp(millisecond)"`
	Day      int32             `parquet:"day,date"`
	Price    int64             `parquet:"price,decimal(2:10)"`
	Key      [16]byte          `parquet:"key,uuid"`
	Extra    string            `parquet:"extra,json"`
	Words    map[string]string `parquet:"words"`
	Where    struct {
		City  string      `parquet:"city"`
		Since []time.Time `parquet:"since,list"`
	} `parquet:"where"`
}

func written[T any](t testing.TB, rows []T, o ...parquet.WriterOption) string {
	var b bytes.Buffer
	w := parquet.NewGenericWriter[T](&b, o...)
	if _, err := w.Write(rows); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestParquet(t *testing.T) {
	customer := "ACME"
	at := time.Date(2026, 2, 3, 4, 5, 6, 7_000_000, time.UTC)
	one := ticket{ID: 1 << 60, Subject: "é", Customer: &customer, Tags: []string{"a", "b"}, Numbers: []int32{1, -2}, Share: 0.1, Small: 0.1, Open: true, Asked: at,
		Day: 20_000, Price: 12345, Key: [16]byte{15: 1}, Extra: `{"a":[1.5,null]}`, Words: map[string]string{"k": "v"}}
	one.Where.City, one.Where.Since = "Ulm", []time.Time{at}
	two := ticket{ID: 2, Extra: `7`, Asked: at}
	const want = `{"id":1152921504606846976,"subject":"é","customer":"ACME","tags":["a","b"],"numbers":[1,-2],"share":0.1,"small":0.1,"open":true,"asked":"2026-02-03T04:05:06.007Z",` +
		`"day":"2024-10-04","price":123.45,"key":"00000000-0000-0000-0000-000000000001","extra":{"a":[1.5,null]},"words":{"k":"v"},"where":{"city":"Ulm","since":["2026-02-03T04:05:06.007Z"]}}` + "\n" +
		`{"id":2,"subject":"","customer":null,"tags":[],"numbers":[],"share":0,"small":0,"open":false,"asked":"2026-02-03T04:05:06.007Z",` +
		`"day":"1970-01-01","price":0,"key":"00000000-0000-0000-0000-000000000000","extra":7,"words":{},"where":{"city":"","since":[]}}`
	for _, codec := range []parquet.WriterOption{parquet.Compression(&parquet.Uncompressed), parquet.Compression(&parquet.Snappy), parquet.Compression(&parquet.Zstd), parquet.MaxRowsPerRowGroup(1)} {
		if got := read(t, "t.parquet", written(t, []ticket{one, two}, codec)); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	}
}

func TestParquetThatIsWrong(t *testing.T) {
	type bytesAndNumbers struct {
		ID  string  `parquet:"id"`
		Raw []byte  `parquet:"raw"`
		N   float64 `parquet:"n"`
	}
	got := read(t, "t.parquet", written(t, []bytesAndNumbers{{"1", []byte{0xff}, 1}, {"2", []byte("x"), math.Inf(1)}, {"3", []byte("x"), 2}}))
	if want := "t.parquet:1:1: raw: expected UTF-8 text, got bytes that are not UTF-8\nt.parquet:2:1: n: expected a finite number, got +Inf\n" + `{"id":"3","raw":"x","n":2}`; got != want {
		t.Errorf("got\n%s", got)
	}
	for _, content := range []string{"", "id,a\n1,2\n", "PAR1PAR1", strings.Repeat("PAR1", 20)} {
		if got := read(t, "t.parquet", content); !strings.HasPrefix(got, "t.parquet: expected a Parquet file: ") {
			t.Errorf("%q: got %s", content, got)
		}
	}
}

// Given a file with a byte that is another, then it is read or refused, and nothing panics.
func TestParquetThatIsDamaged(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	whole := []byte(written(t, []ticket{{ID: 1, Subject: "a", Extra: "1"}, {ID: 2, Subject: "b", Extra: "2"}}))
	for range 150 {
		damaged := bytes.Clone(whole)
		for range 1 + r.IntN(3) {
			damaged[r.IntN(len(damaged))] = byte(r.Uint32())
		}
		if r.IntN(4) == 0 {
			damaged = damaged[:r.IntN(len(damaged))]
		}
		read(t, "t.parquet", string(damaged))
	}
}

// V6: what pyarrow and DuckDB write has the values that they print: all digits of decimals and of
// unsigned numbers, half floats, and maps with null.
func TestParquetOfOtherWriters(t *testing.T) {
	testdata, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"pyarrow": `{"id":"a","big":18446744073709551615,"u32":4294967295,"half":1.5,"price":12.5,"small":1.5,"long":123456789012345678901234567890.12,"whole":5,` +
			`"words":{"k":"v","n":null},"numbers":{"k":1},"list":[1,null],"at":"1970-01-01T00:00:01.234567Z","clock":"01:02:03"}` + "\n" +
			`{"id":"b","big":1,"u32":1,"half":-0.0999755859375,"price":-0.01,"small":-2.5,"long":-1,"whole":-7,"words":{},"numbers":null,"list":null,"at":"1970-01-01T00:00:00Z","clock":"00:00:00"}`,
		"pyarrow-int": `{"id":"a","price":12.5,"small":1.5}` + "\n" + `{"id":"b","price":-0.01,"small":-2.5}`,
	} {
		if got := read(t, "t.parquet", testenv.ReadFile(t, testdata, name+".parquet")); got != want {
			t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
		}
	}
}

// V6: a column that is not understood is refused where the set uses it, and only there.
func TestParquetColumnsThatAreNotUsed(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "t.parquet"), []byte(testenv.ReadFile(t, "testdata", "duckdb.parquet")), 0o600); err != nil {
		t.Fatal(err)
	}
	evaluations := func(inputs string) string {
		set, d := parsed(t, dir, `{"file":"t.parquet","id":"{row.id}","inputs":`+inputs+`,"criteria":{}}`)
		set.Path = filepath.Join(dir, "set.yaml")
		var lines []string
		var r input.Reader
		if err := d.Each(&r, func(e eval.Evaluation) error { lines = append(lines, string(e.Inputs)); return nil }); err != nil {
			t.Fatal(err)
		}
		if r.Problems != nil {
			return r.Problems.Error()
		}
		return strings.Join(lines, "\n")
	}
	want := `{"big":18446744073709551615,"long":123456789012345678901234567890.12,"price":12.5,"words":{"k":"v","n":null}}` + "\n" + `{"big":1,"long":-1,"price":-0.01,"words":null}`
	if got := evaluations(`{"big":"{row.big}","long":"{row.long}","price":"{row.price}","words":"{row.words}"}`); got != want {
		t.Errorf("got\n%s", got)
	}
	if got := evaluations(`{"span":"{row.span}"}`); !strings.Contains(got, "t.parquet:1:1: span: values of the type INTERVAL are not understood") {
		t.Errorf("got\n%s", got)
	}
}
