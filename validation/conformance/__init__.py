"""Conformance of other samplers: current releases under the conformance kit, one process and environment per project.

    python -m validation.conformance --environments FOLDER                   all projects
    python -m validation.conformance --environments FOLDER --only blackjax   one project

The command creates ``FOLDER/PROJECT`` with the versions of ``requirements/PROJECT.txt``, runs ``adapters/PROJECT.py`` there,
updates ``results/matrix.json`` and writes ``docs/conformance_of_peers.md``.

    subjects.py        what a subject is; the process that examines the subjects of one project
    adapters/          one module per project: its subjects, and what makes them callable by the kit
    findings.py        the cause of every failure
    reproductions/     one program per defect, at most 40 lines, with the public interface of the project only
    page.py            the page
"""
