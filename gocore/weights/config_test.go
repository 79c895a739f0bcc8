package weights

import (
	"encoding/json"
	"math"
	"reflect"
	"testing"

	"axlm/gocore/errs"
)

const sample = `{
 "n": 12, "float_n": 128.0, "big": 1e30, "zero": 0, "neg": -4, "f": 0.5, "e": 1e-06, "yes": true, "text": "abc",
 "names": ["a", "b"], "ids": [1, 2.0], "floats": [1, 2.5], "nothing": null, "mixed": [1, "a"],
 "inf": {"__float__": "Infinity"}, "sub": {"n": "x", "deep": {"m": -1}}
}`

func parse(t *testing.T, text string) *Config {
	t.Helper()
	c, err := ParseConfig("config.json", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestGetters(t *testing.T) {
	c := parse(t, sample)
	get := func(value any, err error) any {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
		return value
	}
	cases := []struct {
		name      string
		got, want any
	}{
		{"Int", get(c.Int("n")), 12},
		{"Int of an integral float", get(c.Int("float_n")), 128},
		{"IntDefault present", get(c.IntDefault("n", 3)), 12},
		{"IntDefault absent", get(c.IntDefault("absent", 3)), 3},
		{"IntDefault null", get(c.IntDefault("nothing", 3)), 3},
		{"Count", get(c.Count("n")), 12},
		{"CountDefault", get(c.CountDefault("absent", 0)), 0},
		{"Float", get(c.Float("f")), 0.5},
		{"Float of an integer", get(c.Float("n")), 12.0},
		{"Float with an exponent", get(c.Float("e")), 1e-6},
		{"FloatDefault", get(c.FloatDefault("absent", 2)), 2.0},
		{"tagged Infinity", get(c.Float("inf")), math.Inf(1)},
		{"Bool", get(c.Bool("yes")), true},
		{"BoolDefault", get(c.BoolDefault("absent", true)), true},
		{"String", get(c.String("text")), "abc"},
		{"StringDefault", get(c.StringDefault("nothing", "d")), "d"},
		{"Strings", get(c.Strings("names")), []string{"a", "b"}},
		{"Strings absent", get(c.Strings("absent")), []string(nil)},
		{"Ints", get(c.Ints("ids")), []int{1, 2}},
		{"Floats", get(c.Floats("floats")), []float64{1, 2.5}},
		{"Has", c.Has("n"), true},
		{"Has null", c.Has("nothing"), false},
		{"IsNull", c.IsNull("nothing"), true},
		{"IsNull absent", c.IsNull("absent"), false},
	}
	for _, x := range cases {
		if !reflect.DeepEqual(x.got, x.want) {
			t.Errorf("%s: got %#v, want %#v", x.name, x.got, x.want)
		}
	}
}

func TestGetterErrors(t *testing.T) {
	c := parse(t, sample)
	sub, err := c.Map("sub")
	if err != nil {
		t.Fatal(err)
	}
	deep, err := sub.Map("deep")
	if err != nil {
		t.Fatal(err)
	}
	empty, err := c.Map("absent")
	if err != nil {
		t.Fatal(err)
	}
	second := func(_ any, err error) error { return err }
	cases := []struct {
		err  error
		want string
	}{
		{second(c.Int("absent")), "config.json: absent is missing"},
		{second(c.Int("nothing")), "config.json: nothing is missing"},
		{second(c.Int("f")), "config.json: f: want an integer, got 0.5"},
		{second(c.Int("big")), "config.json: big: want an integer, got 1e+30"},
		{second(c.Int("yes")), "config.json: yes: want an integer, got true"},
		{second(c.Count("zero")), "config.json: zero: want a positive integer, got 0"},
		{second(sub.Count("n")), `config.json: sub.n: want a positive integer, got "x"`},
		{second(deep.Count("m")), "config.json: sub.deep.m: want a positive integer, got -1"},
		{second(c.CountDefault("neg", 1)), "config.json: neg: want a positive integer, got -4"},
		{second(c.Float("text")), `config.json: text: want a number, got "abc"`},
		{second(c.Bool("n")), "config.json: n: want true or false, got 12"},
		{second(c.String("names")), `config.json: names: want a string, got ["a","b"]`},
		{second(c.Strings("mixed")), `config.json: mixed: want a list of strings, got [1,"a"]`},
		{second(c.Ints("floats")), "config.json: floats: want a list of integers, got [1,2.5]"},
		{second(c.Floats("n")), "config.json: n: want a list of numbers, got 12"},
		{second(c.Map("n")), "config.json: n: want an object, got 12"},
		{second(empty.Int("n")), "config.json: absent.n is missing"},
		{second((*Config)(nil).Int("n")), "config.json: n is missing"},
	}
	for _, x := range cases {
		if x.err == nil || x.err.Error() != x.want {
			t.Errorf("got %v, want %q", x.err, x.want)
		} else if errs.Kind(x.err) != errs.KindValue {
			t.Errorf("%v is a %s", x.err, errs.Kind(x.err))
		}
	}
}

func TestReader(t *testing.T) {
	r := parse(t, sample).Reader()
	if got := r.Int("n") + r.CountOr("absent", 5); got != 17 || r.Err() != nil {
		t.Errorf("got %d, %v", got, r.Err())
	}
	if got := r.Map("sub").Map("deep").Int("m"); got != -1 {
		t.Errorf("nested: got %d", got)
	}
	r.Map("sub").Int("n")
	if got := r.Int("n"); got != 0 {
		t.Errorf("after an error Int gave %d", got)
	}
	r.Bool("text")
	wantErr(t, r.Err(), errs.KindValue, `sub.n: want an integer, got "x"`)
}

func TestBrokenJSON(t *testing.T) {
	cases := map[string]struct{ text, want string }{
		"syntax":     {"{\n \"a\": 1,\n \"b\": x}", "line 3, column 7"},
		"truncated":  {"{\"a\": [1,\n2", "line 2, column 2: unexpected end"},
		"empty":      {"", "line 1, column 1"},
		"trailing":   {"{} {}", "line 1, column 4"},
		"no object":  {"[1]", "want a JSON object, got [1]"},
		"NaN inside": {"{\"a\": NaNx}", "line 1, column 7"},
	}
	for name, x := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := ParseConfig("some/config.json", []byte(x.text))
			wantErr(t, err, errs.KindValue, "some/config.json", x.want)
		})
	}
}

// Python's json writes and reads these words, and transformers tags them.
func TestNonFinite(t *testing.T) {
	c := parse(t, `{"a": NaN, "b": [-Infinity, 1], "c": "NaN \" Infinity", "d": -1}`)
	if v, err := c.Float("a"); err != nil || !math.IsNaN(v) {
		t.Errorf("a: %v %v", v, err)
	}
	if v, err := c.Floats("b"); err != nil || !math.IsInf(v[0], -1) {
		t.Errorf("b: %v %v", v, err)
	}
	if v, err := c.String("c"); err != nil || v != `NaN " Infinity` {
		t.Errorf("c: %q %v", v, err)
	}
	data, err := json.Marshal(c)
	if want := `{"a":{"__float__":"NaN"},"b":[{"__float__":"-Infinity"},1],"c":"NaN \" Infinity","d":-1}`; err != nil || string(data) != want {
		t.Errorf("written as %s, %v", data, err)
	}
}
