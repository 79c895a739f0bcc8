package sampling

import "testing"

// The expected values were drawn with mlx.core 0.32.4: random.split(key),
// random.uniform(key=key).
func TestKeyMatchesMLX(t *testing.T) {
	cases := []struct {
		key, next, use Key
		uniform        float32
	}{
		{Key{0, 0}, Key{4146024105, 967050713}, Key{2718843009, 1272950319}, 0.418457121},
		{Key{0, 1}, Key{2441914641, 1384938218}, Key{3819641963, 2025898573}, 0.118150249},
		{Key{0, 7}, Key{966301609, 989289821}, Key{1948237315, 1058547403}, 0.844106972},
		{Key{5, 9}, Key{3105894920, 1294524762}, Key{2167160646, 530464550}, 0.516904414},
		{Key{2147483648, 12345}, Key{3173631826, 4071828785}, Key{1539233137, 2657807607}, 0.699811518},
	}
	for _, c := range cases {
		next, use := c.key.Split()
		if next != c.next || use != c.use {
			t.Errorf("%v splits into %v and %v, want %v and %v", c.key, next, use, c.next, c.use)
		}
		if got := c.key.Uniform(); got != c.uniform {
			t.Errorf("%v draws %v, want %v", c.key, got, c.uniform)
		}
	}
}
