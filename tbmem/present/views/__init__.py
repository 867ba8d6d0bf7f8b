"""The contract between files and screens: for each route one plain JSON answer, the same for every screen.

The Memory tab fetches the answers from routes of the plugin; ``report.html`` carries them inside. ``runs.py`` and
``recordings.py`` declare each answer; sizes are bytes, times Unix seconds, unless the field's name says otherwise.

| route | parameters (identity **bold**) | answer |
|---|---|---|
| ``data/index`` | | ``runs.Index`` |
| ``data/overview`` | **run** (repeated; without one the latest twenty) | ``runs.Overview`` |
| ``data/live`` | **run** (repeated), x=step/time, from, to, points | ``runs.Live`` |
| ``data/ranks`` | **run**, recordings=1 (also their peaks) | ``runs.Ranks`` |
| ``data/compare`` | **before**, **after** (runs), before_file, after_file | ``runs.Compare`` |
| ``data/sides`` | **before**, **after**, before_file, after_file | ``runs.Sides`` |
| ``data/estimate`` | **run**, points | ``runs.Estimated`` |
| ``data/timeline`` | **run**, **file**, **device**, axis, from, to, points, largest | ``recordings.Timeline`` |
| ``data/range`` | **run**, **file**, **device**, axis, from, to, limit | ``recordings.Brushed`` |
| ``data/stack`` | **run**, **file**, **row** | ``recordings.OneAllocation`` |
| ``data/peak`` | **run**, **file**, **device** | ``recordings.Peak`` |
| ``data/tensors`` | **run**, **file**, **device**, search, category, sort, order, offset, limit | \
``recordings.Tensors`` |
| ``data/segments`` | **run**, **file**, **device** | ``recordings.Segments`` |
| ``data/operators`` | **run**, **file**, **device**, axis, from, to | ``recordings.Operators`` |
| ``page.js?v=<version>`` | | the front end as one module that exports ``render()``, cached for a year |
| ``page.css`` | | its style sheets |

- Every URL is relative to the page's base. ``file`` is relative to the run's folder. Without ``device`` the answer is
  of the main one, and its ``devices`` names all. ``axis`` is ``time`` (x is milliseconds since the recording began) or
  ``event`` (x is the number of the event); without it, the one that shows more. ``from`` and ``to`` are in x.
- A refusal is no JSON: status 400 (a parameter is wrong), 403 (outside of the log folder), 404 (no such run or file),
  its body one line for people. An answer with ``empty`` says why there is nothing to draw, and how to get it.
- Large tables are columns: lists of one length under the names of the fields. ``null`` is 'not known'; there is no NaN.
- Search, sort and export of tables: ``sort`` is a column of ``TensorColumns``, ``order`` is ``asc`` or ``desc``.

**In report.html** the same answers stand in ``<script type="application/json" id="tbmem-data">``, an object of answers
by key: ``view?name=value&name=value``, parameters in alphabetical order, values as they are (not encoded), parameters
that are not given left out, a repeated one standing once for each value in the order given; without parameters just
``index``. A value that is a string is the key of the answer to take. ``fetchView(view, params)`` looks up the whole
key, then the key of the identity parameters only, then that without ``device``; what is in neither is an error of the
kind 404. So in a report a zoom gets the whole picture again and is drawn from it, and a brushed range is summed from
the bands of its ``allocations``, which say how many of all they are.
``Index.source`` is ``report`` there. Under ``views`` stand the names of the views that the page has; without it all.
``render()`` is called.
The front end is plain ES modules in ``tbmem/web``: named exports, relative imports, and no top-level ``await``.
"""
