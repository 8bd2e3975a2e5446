# title: pip: native wheels (numpy, pydantic, lxml, cryptography)
# area: Package managers
# net: pip
python3 -m venv v && . v/bin/activate
pip install -q --disable-pip-version-check 'numpy==1.26.4' 'pydantic==2.7.1' 'lxml==5.2.1' 'cryptography==42.0.5' >/dev/null
python - <<'P'
import numpy, pydantic, lxml.etree, cryptography.fernet as f
print(numpy.__version__, numpy.linalg.det(numpy.eye(50)), pydantic.VERSION)
print(lxml.etree.fromstring('<a><b/></a>').tag)
k=f.Fernet(f.Fernet.generate_key()); print(k.decrypt(k.encrypt(b'secret')))
class M(pydantic.BaseModel):
    x:int
print(M(x='4'))
P
