def json_section(name): return []
def pages(): return []
def schemas(): return {}
