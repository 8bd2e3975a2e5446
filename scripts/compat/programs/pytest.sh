# title: pytest: fixtures, tmp_path, monkeypatch, xfail
# area: Tools
cat > test_a.py <<'P'
import pytest,os
@pytest.mark.parametrize('x',range(50))
def test_x(x,tmp_path): (tmp_path/'f').write_text(str(x)); assert int((tmp_path/'f').read_text())==x
def test_env(monkeypatch): monkeypatch.setenv('A','1'); assert os.environ['A']=='1'
@pytest.mark.xfail
def test_f(): assert 0
def test_out(capfd): os.system('echo hi'); assert capfd.readouterr().out=='hi\n'
P
python3 -m pytest -q -p no:cacheprovider 2>&1 | sed -E 's/ in [0-9.]+s.*//'
